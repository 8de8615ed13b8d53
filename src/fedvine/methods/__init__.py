"""The methods, one paper one file; the file name is the name on the command line."""
