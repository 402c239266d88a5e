//! The unit of docs/install.md, under systemd itself.

use expect_test::expect;
use testkit::{Folder, Process, TIMEOUT, petstore};

/// Installs petstore in an overlay over this system, and boots systemd there with a unit that runs `steps`, in namespaces and a
/// control group of its own. $1 is the repository, $2 is [`INIT`].
const BOOT: &str = r#"
set -e
PATH=$PATH:/usr/sbin:/sbin
mkdir machine
mount -t tmpfs petstore machine
cd machine
mkdir groups upper work root
mount -t overlay -o "lowerdir=/,upperdir=$PWD/upper,workdir=$PWD/work" petstore root
# Nothing of this system starts: systemd has only its defaults and the units of petstore.
rm -rf root/etc/petstore root/var/lib/petstore root/etc/systemd root/usr/lib/systemd/system-generators
rm -rf root/usr/lib/systemd/system/*.wants
DESTDIR=$PWD/root "$1/scripts/install"
cat >root/usr/local/lib/systemd/system/steps.service <<UNIT
[Unit]
DefaultDependencies=no
Requires=systemd-journald.service
After=systemd-journald.service
[Service]
Type=oneshot
ExecStart=/bin/bash /run/test/steps
ExecStopPost=systemctl exit
TimeoutStartSec=4min
StandardOutput=file:/run/test/told
StandardError=file:/run/test/errors
UNIT
mount -t cgroup2 petstore groups
group=groups/petstore-test-$$
mkdir "$group"
(
    # This subshell joins the group, and becomes the parent of the machine.
    sh -c 'echo $PPID' >"$group/cgroup.procs"
    exec setpriv --pdeathsig KILL unshare --mount --pid --net --ipc --uts --cgroup --fork --kill-child sh -c "$2" "$0" "${PWD%/*}"
)
find "$group" -depth -type d -exec rmdir {} +
"#;

/// The first process of the machine. $1 is the folder of the test.
const INIT: &str = r#"
set -e
cd root
for folder in dev run sys tmp var/tmp; do mount -t tmpfs petstore $folder; done
mount -t proc petstore proc
# Settings of the kernel are those of this system.
mount --bind proc/sys proc/sys
mount -o remount,ro,bind proc/sys
for device in full null random tty urandom zero; do touch dev/$device; mount --bind /dev/$device dev/$device; done
ln -s pts/ptmx dev/ptmx
mkdir -p sys/fs/cgroup run/test run/old
mount -t cgroup2 petstore sys/fs/cgroup
mount -o remount,ro sys
mount --bind "$1" run/test
pivot_root . run/old
umount -l run/old
exec env -i container=test PATH="$PATH" /lib/systemd/systemd --unit=steps.service --show-status=no --log-target=null
"#;

const STEPS: &str = r#"
ready() { until [ "$(curl -s 127.0.0.1:8082/readyz)" = '{"status":"ready"}' ]; do sleep 0.1; done; echo ready; }

systemd-sysusers /usr/local/lib/sysusers.d/petstore.conf
chgrp petstore /etc/petstore/petstore.toml
systemctl enable --now petstore && ready
stat --format '%A %U' /var/lib/petstore
cat /etc/petstore/existing-only.env
systemctl reload petstore && echo reloaded

echo 'without the volume:'
systemctl stop petstore
mv /var/lib/petstore /var/lib/moved
systemctl start petstore || echo failed
until journalctl -u petstore -o cat | grep -o -m1 'there is no database in /var/lib/petstore'; do sleep 0.1; done
systemctl stop petstore
ls /var/lib/petstore
mv /var/lib/moved/* /var/lib/petstore
systemctl start petstore && ready

echo 'on a read-only disk:'
rm /etc/petstore/existing-only.env
mount --bind /etc /etc && mount -o remount,ro,bind /etc
systemctl restart petstore && ready
umount /etc

echo 'with sockets:'
sockets='petstore.socket petstore-messages.socket petstore-ops.socket'
systemctl start $sockets || echo 'refused while the service runs'
systemctl stop petstore
systemctl enable --now $sockets
systemctl start petstore && ready
systemctl stop petstore
curl -sf --retry 60 127.0.0.1:8080/readyz && echo ' by the socket'
systemctl disable --now $sockets petstore
systemctl is-active petstore
"#;

#[test]
#[ignore = "only root can boot systemd"]
fn unit_serves_protects_the_store_and_holds_sockets() {
    let folder = Folder::new();
    folder.write("steps", STEPS);
    let mut boot = folder.program("setpriv");
    boot.args(["--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", BOOT, "sh"]);
    let mut machine = Process::start(boot.args([env!("CARGO_MANIFEST_DIR"), INIT]).env("BINARY", petstore()));
    // The unit that runs the steps has 4 minutes.
    let ended = machine.ended(5 * TIMEOUT);
    println!("{}", folder.read("errors"));
    assert!(ended.success(), "{ended}: {}", machine.end().stderr);
    expect![[r#"
        ready
        drwx------ petstore
        PETSTORE_EXISTING_ONLY=true
        reloaded
        without the volume:
        failed
        there is no database in /var/lib/petstore
        ready
        on a read-only disk:
        ready
        with sockets:
        refused while the service runs
        ready
        {"status":"ready"} by the socket
        inactive
    "#]]
    .assert_eq(&folder.read("told"));
}
