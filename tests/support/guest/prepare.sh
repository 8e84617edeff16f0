# Runs in the guest once, after its first boot and before the snapshot that every test starts from.
set -eu

state=$(systemctl is-system-running --wait || true)
if [ "$state" != running ]; then
    systemctl --failed --no-pager >&2
    exit 1
fi

# One image for all runtimes, made here: no registry.
tar -C /srv/rootfs -c . >/tmp/rootfs.tar
docker import /tmp/rootfs.tar numapin-test
podman import --quiet /tmp/rootfs.tar numapin-test
docker save --output /tmp/image.tar numapin-test
ctr image import /tmp/image.tar
rm /tmp/rootfs.tar /tmp/image.tar

# An OCI bundle for runc and crun by hand, without a terminal.
mkdir -p /srv/bundle
cd /srv/bundle
runc spec
jq '.process.terminal = false | .root = {path: "/srv/rootfs", readonly: true}' config.json >new.json
mv new.json config.json

# Each runtime once: what it makes on its first start is in the snapshot, and that it works is seen.
docker run --rm --network none numapin-test true
podman run --rm --network none numapin-test true
ctr run --rm docker.io/library/numapin-test:latest first true

# The first CPU quota on a machine and the last one's end make the kernel patch its scheduler's code while it runs, and
# the emulator has panicked on that. With this one there is always a quota, so it is patched here, once.
systemd-run --quiet --unit=quota-keeper --property=CPUQuota=10% sleep infinity
