"""
The kubelet's own answers for whole pods: Memory Manager policy Static and Topology Manager, release 1.36.

Unlike `numapin.planner.placement`, which decides for numapin, this package repeats the kubelet, its habits included;
it never crashes where the kubelet does. It serves ``plan --pod`` and the vectors.
"""
