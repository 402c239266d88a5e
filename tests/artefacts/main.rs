//! The artefacts of a release: each is installed into a clean tree, and a quickstart runs from there.
//!
//! `scripts/release --check` runs these tests on the artefacts in the folder `DIST`. Without `DIST`, they pack the program of
//! the tests, because a release build takes minutes. They run only when they are named, because compiling the tools that pack
//! the program takes minutes, too.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use expect_test::expect;
use serde_json::Value;
use testkit::{FREE_PORTS, Folder, Process, Server, Signal, petstore, succeed};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The folder of the artefacts, built once for all tests. In the target folder, because the tests do not remove it.
static DIST: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(dist) = std::env::var_os("DIST") {
        return PathBuf::from(dist);
    }
    let dist = Path::new(petstore()).with_file_name("dist");
    let folder = Folder::new();
    let stripped = folder.path("petstore");
    succeed(folder.program("strip").arg("-o").arg(&stripped).arg(petstore()));
    // Inherits the whole environment, because cargo needs its variables.
    let mut release = Command::new(format!("{REPOSITORY}/scripts/release"));
    release.env("BINARY", stripped).env("DYNAMIC", "yes");
    // Outside a git checkout, scripts/release needs a time.
    let output = release.env("SOURCE_DATE_EPOCH", "1800000000").arg(VERSION).arg(&dist).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    dist
});

/// Returns the artefact whose name ends in `suffix`.
fn artefact(suffix: &str) -> PathBuf {
    let sums = std::fs::read_to_string(DIST.join("SHA256SUMS")).unwrap();
    let name = sums.lines().map(|line| &line[66..]).find(|name| name.ends_with(suffix));
    DIST.join(name.unwrap_or_else(|| panic!("no *{suffix} in {sums}")))
}

fn is_static(program: &Path) -> bool {
    !succeed(Command::new("readelf").arg("--program-headers").arg(program)).contains("INTERP")
}

/// Starts `quickstart`, gets an animal, and returns the exit status after SIGTERM. `command` ends in the program.
async fn quickstart(mut command: Command, data: &Path) -> Option<i32> {
    command.args(["quickstart", "--log-format=json"]).args(FREE_PORTS.split(' '));
    let server = Server::start(&mut command);
    let key = std::fs::read_to_string(data.join("quickstart.key")).unwrap();
    let pets = server.request("/v1/pets?limit=1", key.trim_end()).await;
    assert_eq!((pets.status(), pets.body.contains("Rex")), (200, true), "{}", pets.body);
    server.end_by(Signal::TERM).code
}

#[test]
fn checksums_of_artefacts_match() {
    succeed(Command::new("sha256sum").args(["--check", "--quiet", "--strict", "SHA256SUMS"]).current_dir(&*DIST));
}

/// The content of the archive.
fn archive() -> Folder {
    let folder = Folder::new();
    succeed(folder.program("tar").args(["--extract", "--strip-components=1", "--file"]).arg(artefact(".tar.gz")));
    folder
}

#[tokio::test]
async fn archive_of_artefacts_installs_and_serves() {
    let folder = archive();

    expect![[r#"
        bin/petstore
        etc/petstore/petstore.toml
        lib/systemd/system/petstore-messages.socket
        lib/systemd/system/petstore-ops.socket
        lib/systemd/system/petstore.service
        lib/systemd/system/petstore.socket
        lib/sysusers.d/petstore.conf
        share/bash-completion/completions/petstore
        share/doc/petstore/CHANGELOG.md
        share/doc/petstore/LICENSE-APACHE
        share/doc/petstore/LICENSE-MIT
        share/doc/petstore/README.md
        share/doc/petstore/SECURITY.md
        share/doc/petstore/bench/README.md
        share/doc/petstore/ops/compose.postgres.yml
        share/doc/petstore/ops/compose.yml
        share/doc/petstore/ops/grafana/petstore.json
        share/doc/petstore/ops/kubernetes/petstore.yml
        share/doc/petstore/ops/petstore.toml
        share/doc/petstore/ops/prometheus/alerts.yml
        share/doc/petstore/ops/proxy/Caddyfile
        share/doc/petstore/ops/proxy/haproxy.cfg
        share/doc/petstore/ops/proxy/nginx.conf
        share/doc/petstore/petstore.cdx.json
        share/doc/petstore/third-party-licences.txt
        share/fish/vendor_completions.d/petstore.fish
        share/zsh/site-functions/_petstore
    "#]]
    .assert_eq(&succeed(
        folder.program("sh").args(["-c", "find * -type f ! -path '*/man1/*' ! -path '*/docs/*' | LC_ALL=C sort"]),
    ));
    assert!(folder.names("share/man/man1").len() >= 29);
    for page in ["docs/operations.md", "docs/evidence/promises.md", "docs/console/overview.png"] {
        assert!(folder.path("share/doc/petstore").join(page).exists(), "{page} is missing");
    }
    let licences = folder.read("share/doc/petstore/third-party-licences.txt");
    assert!(["tokio 1.", "\nSQLite\n", "\nglibc."].iter().all(|part| licences.contains(part)));
    let bill: Value = serde_json::from_str(&folder.read("share/doc/petstore/petstore.cdx.json")).unwrap();
    assert_eq!(bill["metadata"]["component"]["version"], VERSION);
    // A static program also contains these, which are no crates.
    for (name, licence) in [("glibc", "LGPL-2.1-or-later"), ("rust-std", "MIT OR Apache-2.0")] {
        let component = bill["components"].as_array().unwrap().iter().find(|component| component["name"] == name);
        let component = component.unwrap_or_else(|| panic!("{name} is not in the bill of materials"));
        assert_eq!(component["licenses"][0]["expression"], licence);
        let version = component["version"].as_str().unwrap();
        assert!(version.starts_with(|digit: char| digit.is_ascii_digit()), "{component}");
    }
    let program = folder.path("bin/petstore");
    let shown = succeed(folder.program(&program).args(["config", "show", "--config", "etc/petstore/petstore.toml"]));
    assert!(shown.contains("/var/lib/petstore"), "{shown}");

    assert_eq!(quickstart(folder.program(program), &folder.path("petstore-data")).await, Some(0));
}

#[test]
fn static_program_of_artefacts_loads_no_library() {
    let folder = archive();
    if !is_static(&folder.path("bin/petstore")) {
        assert!(std::env::var_os("DIST").is_none(), "the program of a release is static");
        return;
    }
    // Looks up a name on a system whose nsswitch.conf names a module.
    folder.write("nsswitch.conf", "hosts: files mdns4_minimal [NOTFOUND=return] resolve dns\n");
    let url = "--database-url=postgres://petstore@database.invalid/petstore";
    let mut bwrap = folder.program("bwrap");
    bwrap.args(["--bind", "/", "/", "--dev", "/dev", "--ro-bind", "nsswitch.conf", "/etc/nsswitch.conf", "--"]);
    bwrap.args(["strace", "-f", "-e", "trace=open,openat", "bin/petstore", "migrate", "status", url]);
    let ended = Process::start(&mut bwrap).end();
    assert!(ended.stderr.contains("nsswitch.conf") && ended.stderr.contains("/etc/hosts"), "{}", ended.stderr);
    assert!(!ended.stderr.contains(".so"), "{}", ended.stderr);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
}

#[tokio::test]
async fn image_of_artefacts_is_accepted_and_serves() {
    let folder = Folder::new();
    let oci = artefact("-oci.tar").display().to_string();
    let inspected = succeed(folder.program("skopeo").args(["inspect", &format!("oci-archive:{oci}")]));
    let labels = &serde_json::from_str::<Value>(&inspected).unwrap()["Labels"];
    assert_eq!(labels["org.opencontainers.image.version"], VERSION, "{inspected}");
    assert_eq!(labels["org.opencontainers.image.licenses"], "MIT OR Apache-2.0", "{inspected}");
    let docker = format!("docker-archive:{}", artefact("-docker.tar").display());
    let config = succeed(folder.program("skopeo").args(["inspect", "--config", "--raw", &docker]));
    assert!(config.contains(r#""Test":["CMD","/petstore","healthcheck"]"#), "{config}");
    let insecure = ["--insecure-policy", "copy", "--quiet"];
    succeed(folder.program("skopeo").args(insecure).arg(format!("oci-archive:{oci}")).arg("oci:image:petstore"));
    succeed(folder.program("umoci").args(["unpack", "--rootless", "--image", "image:petstore", "bundle"]));

    let config: Value = serde_json::from_str(&folder.read("bundle/config.json")).unwrap();
    let process = &config["process"];
    assert_eq!((&process["user"]["uid"], &process["user"]["gid"]), (&65_532.into(), &65_532.into()));
    assert_eq!(process["args"], serde_json::json!(["/petstore", "serve"]));
    assert!(process["env"].as_array().unwrap().contains(&"TMPDIR=/data".into()), "{process}");
    assert_eq!(folder.names("bundle/rootfs"), ["data", "licences", "petstore"]);
    assert!(folder.names("bundle/rootfs/licences").contains(&"third-party-licences.txt".to_owned()));

    // As the image's user, without capabilities, and with a read-only root except for /data.
    let mut bwrap = folder.program("bwrap");
    bwrap.args(["--unshare-user", "--uid", "65532", "--gid", "65532", "--cap-drop", "ALL", "--clearenv"]);
    for setting in process["env"].as_array().unwrap() {
        let (name, value) = setting.as_str().unwrap().split_once('=').unwrap();
        bwrap.args(["--setenv", name, value]);
    }
    std::fs::create_dir(folder.path("data")).unwrap();
    bwrap.args(["--bind", "bundle/rootfs", "/", "--proc", "/proc", "--dev", "/dev", "--bind", "data", "/data"]);
    if !is_static(&folder.path("bundle/rootfs/petstore")) {
        bwrap.args(["--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]);
    }
    bwrap.args(["--remount-ro", "/", "--chdir", process["cwd"].as_str().unwrap()]);
    bwrap.args(["--die-with-parent", "--", "/petstore"]);
    // bwrap does not forward signals.
    assert_eq!(quickstart(bwrap, &folder.path("data")).await, None);
}

#[test]
fn debian_package_of_artefacts_is_accepted_by_lintian() {
    let folder = Folder::new();
    let mut lintian = folder.program("lintian");
    lintian.args(["--no-cfg", "--allow-root", "--fail-on", "error,warning"]);
    if std::env::var_os("DIST").is_none() {
        // The program of the tests is not static, but the package does not depend on its libraries.
        lintian.args(["--suppress-tags", "missing-dependency-on-libc"]);
    }
    succeed(lintian.arg(artefact(".deb")));
}

/// Installs, upgrades, removes and purges the Debian package in an overlay over this system. $1 is the package, $2 a folder.
const LIFE: &str = r#"
set -e
mount -t tmpfs petstore "$2"
cd "$2"
mkdir upper work root old
mount -t overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" petstore root
mount --rbind /dev root/dev
mount --rbind /proc root/proc
dpkg-deb --raw-extract "$1" old
sed -i 's/^Version: .*/Version: 0.0.1-1/' old/DEBIAN/control
echo '# An older default' >> old/etc/petstore/petstore.toml
dpkg-deb --build --root-owner-group -Znone old root/old.deb >/dev/null
cp "$1" root/new.deb
# Otherwise each step indexes the manual pages of the whole system.
rm -f root/var/lib/man-db/auto-update
unset TMPDIR
inside() { chroot root "$@"; }
life() { echo "$1:"; shift; inside env DEBIAN_FRONTEND=noninteractive dpkg "$@" >log 2>&1 || { cat log >&2; exit 1; }; }
owner() { inside stat --format='%A %U %G %n' "$@"; }

life install --install old.deb
owner /etc/petstore/petstore.toml /usr/bin/petstore
inside getent passwd petstore | cut -d: -f1,6
inside install -d -m 0700 -o petstore -g petstore /var/lib/petstore
listen='--listen=127.0.0.1:0 --messages-listen=127.0.0.1:0 --ops-listen=127.0.0.1:0'
chroot root setpriv --reuid=petstore --regid=petstore --clear-groups --no-new-privs \
    petstore quickstart --config /etc/petstore/petstore.toml --log-format=json $listen >out 2>err &
for try in $(seq 6000); do kill -0 $! && ! grep -q '"listening"' err || break; sleep 0.1; done
store=$(sed -n 's/.*"store":"\([^"]*\)".*/\1/p' err)
curl -sS -H "Authorization: Bearer $(cat root/var/lib/petstore/quickstart.key)" "http://$store/v1/pets?limit=1"
echo
kill -TERM $!
wait $!
life upgrade --install new.deb
inside petstore --version | cut -d' ' -f1,2
owner /etc/petstore/petstore.toml
tail -n 1 root/etc/petstore/petstore.toml | grep -c older || true
life 'upgrade after a change by the administrator' --install new.deb
echo 'log-level = "debug"' >> root/etc/petstore/petstore.toml
life 'same again' --install --force-confold new.deb
tail -n 1 root/etc/petstore/petstore.toml
life remove --remove petstore
(cd upper; find etc usr var/lib -name '*petstore*' ! -type c ! -path '*/dpkg/*' ! -path 'var/lib/petstore/*') | LC_ALL=C sort
life purge --purge petstore
tail -n 1 log
(cd upper; find etc usr var/lib -name '*petstore*' ! -type c ! -path 'var/lib/petstore/*') | LC_ALL=C sort
inside petstore --version 2>/dev/null || echo 'no program'
"#;

/// Only root can install packages. Without root, the test checks the content of the package.
#[tokio::test]
async fn debian_package_of_artefacts_installs_upgrades_and_purges() {
    let folder = Folder::new();
    let package = artefact(".deb");
    succeed(folder.program("dpkg-deb").arg("--extract").arg(&package).arg(folder.path("tree")));
    let unpacked = folder.program(folder.path("tree/usr/bin/petstore"));
    assert_eq!(quickstart(unpacked, &folder.path("petstore-data")).await, Some(0));
    if !rustix::process::getuid().is_root() {
        return;
    }
    let tree = folder.path("life");
    std::fs::create_dir(&tree).unwrap();
    let life = succeed(folder.program("unshare").args(["--mount", "sh", "-c", LIFE, "sh"]).arg(package).arg(tree));
    expect![[r#"
        install:
        -rw-r----- root petstore /etc/petstore/petstore.toml
        -rwxr-xr-x root root /usr/bin/petstore
        petstore:/var/lib/petstore
        [{"id":1,"name":"Rex","categoryId":1,"status":"available"}]
        upgrade:
        petstore VERSION
        -rw-r----- root petstore /etc/petstore/petstore.toml
        0
        upgrade after a change by the administrator:
        same again:
        log-level = "debug"
        remove:
        etc/petstore
        etc/petstore/petstore.toml
        etc/systemd/system/petstore-messages.socket
        etc/systemd/system/petstore-ops.socket
        etc/systemd/system/petstore.service
        etc/systemd/system/petstore.socket
        var/lib/petstore
        var/lib/systemd/deb-systemd-helper-enabled/petstore-messages.socket.dsh-also
        var/lib/systemd/deb-systemd-helper-enabled/petstore-ops.socket.dsh-also
        var/lib/systemd/deb-systemd-helper-enabled/petstore.service.dsh-also
        var/lib/systemd/deb-systemd-helper-enabled/petstore.socket.dsh-also
        var/lib/systemd/deb-systemd-helper-masked/petstore-messages.socket
        var/lib/systemd/deb-systemd-helper-masked/petstore-ops.socket
        var/lib/systemd/deb-systemd-helper-masked/petstore.service
        var/lib/systemd/deb-systemd-helper-masked/petstore.socket
        purge:
        Kept the data in /var/lib/petstore: remove the folder to delete it.
        var/lib/petstore
        no program
    "#]]
    .assert_eq(&life.replace(VERSION, "VERSION"));
}

#[test]
fn release_of_another_version_is_refused() {
    let folder = Folder::new();
    let release = |arguments: &[&str]| {
        let ended = Process::start(folder.program(format!("{REPOSITORY}/scripts/release")).args(arguments)).end();
        format!("exit {:?}: {}\n", ended.code.unwrap(), ended.stderr.lines().next().unwrap())
    };
    let told = [release(&["9.9.9"]), release(&[]), release(&["--fast", VERSION])].concat();
    expect![[r#"
        exit 1: scripts/release: the version in Cargo.toml is VERSION, not 9.9.9
        exit 2: scripts/release: VERSION is missing, or there are too many arguments
        exit 2: scripts/release: unexpected argument `--fast`
    "#]]
    .assert_eq(&told.replace(VERSION, "VERSION"));
}
