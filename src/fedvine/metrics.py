"""temporary stub: helper-2 replaces this file"""
import numpy as np
from sklearn.metrics import roc_auc_score, average_precision_score
def auc(p, n): return float(roc_auc_score(np.r_[np.ones(len(p)), np.zeros(len(n))], np.r_[p, n]))
def average_precision(p, n): return float(average_precision_score(np.r_[np.ones(len(p)), np.zeros(len(n))], np.r_[p, n]))
def ranks(p, n): return 1 + (n > p[:, None]).sum(1) + 0.5 * (n == p[:, None]).sum(1)
def mrr(r): return float((1 / r).mean())
def hits(r, k): return float((r <= k).mean())
