"""Methods of other papers, to compare with; they import ``methods``, which never imports them."""
