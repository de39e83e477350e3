# The packages of CUDA go to a lock of their own: PyTorch's CPU build does not need them.
BEGIN {
    print "# Written by make lock: what make installs, with the hashes that pip checks." > "requirements-dev.txt"
    print "# Written by make lock: what PyTorch's build for CUDA needs as well." > "requirements-cuda.txt"
}
/^[a-z]/ { out = /^(cuda|nvidia)-/ ? "requirements-cuda.txt" : "requirements-dev.txt" }
out && NF { print > out }
