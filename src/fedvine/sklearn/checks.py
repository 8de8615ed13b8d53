"""The checks of scikit-learn that an estimator cannot pass, with the reason of each.

>>> from sklearn.utils.estimator_checks import check_estimator
>>> from fedvine.sklearn import LinkForecaster
>>> from fedvine.sklearn.checks import LINK_CHECKS
>>> found = check_estimator(LinkForecaster(), expected_failed_checks=LINK_CHECKS, on_skip=None)
"""

from __future__ import annotations

_ARRAY = "fits a numeric 2-D array; rows of links have named columns: two ends and a time"

LINK_CHECKS = dict.fromkeys((
    "check_complex_data", "check_dict_unchanged", "check_dont_overwrite_parameters",
    "check_dtype_object", "check_estimators_dtypes", "check_estimators_empty_data_messages",
    "check_estimators_fit_returns_self", "check_estimators_nan_inf",
    "check_estimators_overwrite_params", "check_estimators_pickle",
    "check_f_contiguous_array_estimator", "check_fit2d_1feature", "check_fit2d_1sample",
    "check_fit2d_predict1d", "check_fit_check_is_fitted", "check_fit_idempotent",
    "check_fit_score_takes_y", "check_methods_sample_order_invariance",
    "check_methods_subset_invariance", "check_n_features_in", "check_n_features_in_after_fitting",
    "check_pipeline_consistency", "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input"), _ARRAY)

NODE_CHECKS = {
    "check_methods_subset_invariance": "compares rows asked alone with rows asked together to 1e-7;"
    " nodes are classified as one graph in float32, whose last bits depend on its size"}
