#!/bin/sh
# Runs on the host at the end of the root file system's build; $1 is its directory.
set -eu
root=$1

# The test image's content: busybox under every name it answers to.
bin=$root/srv/rootfs/bin
mkdir -p "$bin" "$root/srv/rootfs/proc" "$root/srv/rootfs/sys" "$root/srv/rootfs/dev" "$root/srv/rootfs/tmp"
cp "$root/bin/busybox" "$bin/busybox"
for name in $(chroot "$root" /bin/busybox --list); do
    test -e "$bin/$name" || ln -s busybox "$bin/$name"
done

chroot "$root" systemctl --quiet enable guest-exec.service docker.service containerd.service

# What would wake up by itself in the middle of a test.
chroot "$root" systemctl --quiet mask \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    e2scrub_reap.service fstrim.timer logrotate.timer man-db.timer systemd-tmpfiles-clean.timer \
    podman-auto-update.timer podman-auto-update.service podman-clean-transient.service \
    podman-restart.service podman.service podman.socket nftables.service getty@tty1.service

# What only the host's way to its packages needs.
rm -f "$root"/etc/apt/apt.conf.d/99mmdebstrap
passwd --root "$root" --delete root >/dev/null
