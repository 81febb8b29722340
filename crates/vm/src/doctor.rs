//! What this machine has, what is missing, and how to install it. Looks only; fetches nothing.

use crate::fetch::apt::{Archive, OLD_MIRROR};
use crate::fetch::cache::{Cache, free_space};
use crate::fetch::packages::Packages;
use crate::kernel::kernels;
use crate::qemu::{MIN_VERSION, Qemu};
use serde::Serialize;
use std::fs;

/// The state of one thing that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Present and usable.
    Ok,
    /// Absent; a run fetches it by itself.
    Later,
    /// Absent, and nothing works without it.
    Missing,
    /// Absent, and only a special use needs it.
    Optional,
    /// Present, but too old.
    Old,
}

/// One check of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The name of what was looked for.
    pub name: String,
    /// The result.
    pub state: State,
    /// Details, such as version and path.
    pub detail: String,
    /// How to install it, where it is absent.
    pub remedy: Option<String>,
}

impl Check {
    fn new(name: impl Into<String>, state: State, detail: impl Into<String>) -> Check {
        Check { name: name.into(), state, detail: detail.into(), remedy: None }
    }

    fn with(mut self, remedy: impl Into<String>) -> Check {
        self.remedy = Some(remedy.into());
        self
    }
}

/// Disk space for everything: index, QEMU, three kernels, run folders.
const WANTED_SPACE: u64 = 3 << 30;

/// Runs all checks.
pub fn checks(cache: &Cache) -> Vec<Check> {
    let packages = Packages::new(cache);
    let archive = packages.archive();
    let mut checks = vec![space(cache), mirror(archive), keyring(archive)];
    checks.extend(limits(cache));
    if archive.any_date {
        let detail = format!("{OLD_MIRROR} is set: the package index may be old");
        checks.push(Check::new("dates of packages", State::Optional, detail).with("unset it"));
    }
    for (name, package) in [("apt-get", "apt"), ("dpkg-deb", "dpkg")] {
        checks.push(program(name, package, State::Missing, "packages cannot be fetched"));
    }
    checks.push(if packages.has_index() {
        Check::new("package index", State::Ok, cache.path("apt").display().to_string())
    } else {
        Check::new("package index", State::Later, "not fetched")
            .with("the first run fetches it (about 50 MB)")
    });
    checks.push(qemu(&packages));
    checks.push(if cache.path("guest").is_dir() {
        Check::new("guest programs", State::Ok, cache.path("guest").display().to_string())
    } else {
        Check::new("guest programs", State::Later, "not fetched").with("the first run fetches them (4 MB)")
    });
    for kernel in kernels::list(cache) {
        let name = format!("kernel {}", kernel.name);
        checks.push(match kernel.release.filter(|_| kernel.cached) {
            Some(release) => Check::new(name, State::Ok, release),
            None => Check::new(name, State::Later, "not fetched")
                .with(format!("the first run with --kernel {} fetches it (70 to 170 MB)", kernel.name)),
        });
    }
    for (name, package) in [("gcc", "gcc"), ("make", "make")] {
        checks.push(program(name, package, State::Optional, "drivers of the zoo cannot be built"));
    }
    checks.extend([landlock(), roots(), users()]);
    // SAFETY: geteuid has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    checks.push(if root {
        Check::new("user", State::Ok, "root")
    } else {
        Check::new(
            "user",
            State::Ok,
            "not root: everything works; only apt-get install, where this list names it, needs root",
        )
    });
    checks
}

/// What keeps this machine from fetching anything, where something does.
fn limits(cache: &Cache) -> Vec<Check> {
    let works = "what the cache holds works as it is";
    let mut limits = Vec::new();
    if !cache.is_writable() {
        let detail = format!("it takes no files: {works}, and nothing can be added");
        limits.push(
            Check::new("cache folder", State::Optional, detail)
                .with("point GUARDRAIL_CACHE to a folder of yours"),
        );
    }
    let routes = ["/proc/net/route", "/proc/net/ipv6_route"].map(|path| fs::read_to_string(path).ok());
    if !routes.iter().flatten().any(|table| leads_out(table)) && routes.iter().any(Option::is_some) {
        let detail = format!("no route leads out of this machine: {works}, and nothing can be fetched");
        limits.push(Check::new("network", State::Optional, detail).with(
            "connect it, or carry a cache from another machine: guardrail cache export, then guardrail cache import",
        ));
    }
    limits
}

/// Whether a table of the kernel's routes has one that is not of the loopback device.
fn leads_out(table: &str) -> bool {
    // The table of IPv4 has the device first and a line of heads, that of IPv6 has it last.
    let devices = table.lines().filter(|line| !line.starts_with("Iface")).filter_map(|line| {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        Some(if first.len() == 32 { words.next_back()? } else { first })
    });
    devices.into_iter().any(|device| device != "lo")
}

fn keyring(archive: &Archive) -> Check {
    match archive.keyring() {
        Ok(keyring) => Check::new("keyring", State::Ok, keyring.display().to_string()),
        Err(error) => Check::new("keyring", State::Missing, "signatures of packages cannot be checked")
            .with(error.to_string()),
    }
}

fn mirror(archive: &Archive) -> Check {
    match archive.mirror() {
        Ok(mirror) => Check::new("Debian mirror", State::Ok, mirror.main),
        Err(error) => Check::new("Debian mirror", State::Missing, "not named").with(error.to_string()),
    }
}

fn qemu(packages: &Packages) -> Check {
    let found = Qemu::system().or_else(|| Qemu::cached(packages));
    if let Some(qemu) = found {
        let detail = format!("{}.{} at {}", qemu.version.0, qemu.version.1, qemu.program.display());
        return Check::new("QEMU", State::Ok, detail);
    }
    let wanted = format!("{}.{} or newer is needed", MIN_VERSION.0, MIN_VERSION.1);
    let remedy = "the first run fetches a private copy (37 MB); nothing is installed";
    match Qemu::system_version() {
        Some((major, minor)) => {
            Check::new("QEMU", State::Old, format!("the system's is {major}.{minor}; {wanted}")).with(remedy)
        }
        None => Check::new("QEMU", State::Later, wanted).with(remedy),
    }
}

/// What keeps QEMU from files, ports and processes that a run does not name.
fn landlock() -> Check {
    let found = guardrail_jail::available();
    match found.gap() {
        None => Check::new("Landlock", State::Ok, found.to_string()),
        Some(gap) => Check::new("Landlock", State::Optional, format!("{found}: of QEMU and the gate, {gap}"))
            .with("Linux 6.12 or newer, with landlock in its lsm= list, has all of it"),
    }
}

/// What hides the rest of the system from QEMU and the gate.
fn roots() -> Check {
    let name = "own roots";
    match guardrail_jail::apart().roots {
        true => Check::new(name, State::Ok, "QEMU and the gate have own roots, IPC, host names and networks"),
        false => {
            Check::new(name, State::Optional, "QEMU and the gate see the host's file names, network and IPC")
                .with("run as root, or permit user namespaces to other users")
        }
    }
}

/// What keeps QEMU, the gate and the analysis apart from each other.
fn users() -> Check {
    let name = "own users";
    match guardrail_jail::apart().users {
        true => Check::new(name, State::Ok, "QEMU, the gate and the analysis have uids of their own"),
        false => Check::new(
            name,
            State::Optional,
            "QEMU and the gate keep the uid of the user who starts a run",
        )
        .with("run as root, on Linux 6.3 or newer, with files on file systems that map owners, such as ext4"),
    }
}

fn program(name: &str, package: &str, absent: State, consequence: &str) -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file()) {
        Some(file) => Check::new(name, State::Ok, file.display().to_string()),
        None => Check::new(name, absent, consequence).with(format!("apt-get install {package}")),
    }
}

fn space(cache: &Cache) -> Check {
    let root = cache.root();
    let place = root.display();
    let Some(free) = free_space(root) else {
        return Check::new("cache", State::Ok, place.to_string());
    };
    let detail = format!("{place}, {:.1} GB free", free as f64 / 1e9);
    let used_already = cache.path("qemu").is_dir() && cache.path("guest").is_dir();
    if free >= WANTED_SPACE || used_already && free >= WANTED_SPACE / 10 {
        Check::new("cache", State::Ok, detail)
    } else {
        Check::new("cache", State::Missing, detail)
            .with("free some space (3 GB hold everything), or point GUARDRAIL_CACHE elsewhere")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_network_has_routes_of_the_loopback_alone() {
        let heads = "Iface\tDestination\tGateway\n";
        let six = |device: &str| {
            format!("{0} 00 {0} 00 {0} 00000100 00000001 00000000 00200200 {device}\n", "0".repeat(32))
        };
        assert!(!leads_out("") && !leads_out(heads) && !leads_out(&six("lo")));
        assert!(leads_out(&format!("{heads}eth0\t00000000\t010200C0\n")));
        assert!(leads_out(&(six("lo") + &six("eth0"))));
    }

    #[test]
    fn an_empty_cache_has_everything_later_and_each_gap_has_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let all = checks(&Cache::at(folder.path()).unwrap());
        let kernel = all.iter().find(|check| check.name == "kernel 6.12").unwrap();
        assert_eq!(kernel.state, State::Later);
        assert!(all.iter().all(|check| check.state == State::Ok || check.remedy.is_some()), "{all:?}");
    }
}
