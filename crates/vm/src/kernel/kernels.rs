//! Kernels: by short name from Debian's archive, or from a package or folder on disk.

use crate::error::{Context, Error, Result, suggest};
use crate::fetch::cache::Cache;
use crate::fetch::packages::{Fetch, Packages, SourcePart, deb_files, unpack, unpack_source};
use crate::kernel::foreign;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// The kernels that Guardrail supports, by short name.
pub const NAMES: [&str; 3] = ["6.1", "6.12", "7.2"];

/// The kernel that is used where the user names none.
pub const DEFAULT: &str = "6.1";

/// The name of the kernel that this machine runs.
const HOST: &str = "host";

/// How releases of Debian's kernels end.
const DEBIANS: &str = "-amd64";

/// The file of headers that says what the kernel and its modules export.
const SYMBOLS: &str = "Module.symvers";

/// A kernel that can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// What `uname -r` says, such as `6.1.0-56-amd64`.
    pub release: String,
    /// The compressed image.
    pub vmlinuz: PathBuf,
    /// The folder that holds `kernel/` and `modules.builtin`.
    pub modules: PathBuf,
}

/// The choice for a short name, remembered so that later runs use the same kernel and need no network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pin {
    release: String,
    packages: Vec<String>,
}

/// One row of `list kernels`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The short name, such as `6.1`.
    pub name: String,
    /// The release that it stands for; `None` before it was used or fetched.
    pub release: Option<String>,
    /// True where a run needs no network.
    pub cached: bool,
}

/// Finds the kernel that `wanted` names:
///
/// - a short name (`6.1`, `6.1-cloud`, `6.1-rt`), a release (`6.1.0-47-amd64`), or `host` for the one that this machine runs
/// - a package, or a folder of packages
/// - the image of an installed kernel (`/boot/vmlinuz-RELEASE`)
/// - the folder where a kernel was built
/// - a folder of unpacked packages: `FOLDER`, or `FOLDER:RELEASE` where it holds several
pub fn find(packages: &Packages, wanted: &str) -> Result<Kernel> {
    let path = Path::new(wanted);
    if wanted == HOST {
        return below(Path::new("/"), &running()?);
    }
    if wanted.contains('/') || wanted.ends_with(".deb") || foreign::is_package(path) || path.is_dir() {
        return from_path(packages.cache(), wanted);
    }
    let pinned = pin(packages, wanted)?;
    match fetch(packages, &pinned) {
        Err(error @ Error::Program { .. }) => {
            // The archive drops superseded builds: one that was chosen but never fetched may be absent.
            packages.forget(&format!("pins/{wanted}"))?;
            packages.update()?;
            let newer = pin(packages, wanted)?;
            if newer == pinned { Err(error) } else { fetch(packages, &newer) }
        }
        other => other,
    }
}

fn fetch(packages: &Packages, pin: &Pin) -> Result<Kernel> {
    let names: Vec<&str> = pin.packages.iter().map(String::as_str).collect();
    let what = format!("kernel {}", pin.release);
    let tree = packages.ensure_tree(&format!("kernels/{}", pin.release), &what, Fetch::Exactly(&names))?;
    in_tree(&tree, Some(&pin.release))
}

/// The kernels by short name, with what the cache knows of them; uses no network.
pub fn list(cache: &Cache) -> Vec<Listed> {
    NAMES
        .iter()
        .map(|name| {
            let pin = read_pin(cache, name);
            let cached =
                pin.as_ref().is_some_and(|pin| cache.path(&format!("kernels/{}", pin.release)).is_dir());
            Listed { name: (*name).to_owned(), release: pin.map(|pin| pin.release), cached }
        })
        .collect()
}

/// The folder with the headers that modules for `kernel` are built against, from the archive; they are in its
/// `usr/src/linux-headers-RELEASE`. It contains headers of the release, the common ones, and the build
/// programs.
pub fn headers(packages: &Packages, kernel: &Kernel) -> Result<PathBuf> {
    let release = &kernel.release;
    let base = release
        .strip_suffix(DEBIANS)
        .ok_or_else(|| Error::BadValue(format!("no headers packages are known for kernel {release}")))?;
    // Up to 6.1 the build programs are shared by all builds of a version.
    let (build, flavor) = flavored(base);
    let series: Vec<&str> = build.split(['.', '-', '+']).collect();
    let shared = format!("linux-kbuild-{}.{}", series[0], series.get(1).unwrap_or(&"0"));
    let kbuild = if build.contains('+') { format!("linux-kbuild-{build}") } else { shared };
    let (common, own) =
        (format!("linux-headers-{build}-common"), format!("linux-headers-{build}-common-{flavor}"));
    // Up to 6.12 real-time builds have common headers of their own.
    let common = if !flavor.is_empty() && packages.names(&own)?.contains(&own) { own } else { common };
    let names = [format!("linux-headers-{release}"), common, kbuild];
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let what = format!("headers of kernel {release}");
    packages.ensure_tree(&format!("headers/{release}"), &what, Fetch::Exactly(&names))
}

/// The release of the kernel that this machine runs.
pub(crate) fn running() -> Result<String> {
    let path = Path::new("/proc/sys/kernel/osrelease");
    Ok(fs::read_to_string(path).context("read", path)?.trim().to_owned())
}

/// The headers tree of `kernel`: where it was built or installed, in the packages that it came in, else from the
/// archive.
pub fn headers_tree(packages: &Packages, kernel: &Kernel) -> Result<PathBuf> {
    let Kernel { release, modules, .. } = kernel;
    let own = modules.join("build");
    if own.join(SYMBOLS).is_file() {
        return own.canonicalize().context("find", &own);
    }
    if release.ends_with(DEBIANS) {
        return Ok(headers(packages, kernel)?.join(format!("usr/src/linux-headers-{release}")));
    }
    let root = root_and_release(modules).map(|(root, _)| root);
    let places = root.into_iter().flat_map(|root| foreign::headers(&root, release));
    places.into_iter().find(|folder| folder.join(SYMBOLS).is_file()).ok_or_else(|| Error::BadKernel {
        path: own.clone(),
        why: format!(
            "kernel {release} has no headers ({SYMBOLS}) there, which drivers are built with; run make modules where it was built, or put its package of headers (linux-headers, kernel-devel) beside the other one"
        ),
    })
}

/// The folder with the source of `kernel`'s version, from the archive, without documentation, architectures
/// and tools. It is the newest source of that version; its drivers build against the headers of any release
/// of the version.
pub fn source(packages: &Packages, kernel: &Kernel) -> Result<PathBuf> {
    part_of_source(packages, kernel, "source", SourcePart::Kernel)
}

/// The folder whose `tools/verification` is the program that makes monitors of automata, and whose `tools/testing/kunit` reads
/// the results of tests, from the source of `kernel`'s version.
pub fn tools(packages: &Packages, kernel: &Kernel) -> Result<PathBuf> {
    part_of_source(packages, kernel, "tools", SourcePart::Tools)
}

fn part_of_source(packages: &Packages, kernel: &Kernel, tree: &str, part: SourcePart) -> Result<PathBuf> {
    let version = version(&kernel.release).ok_or_else(|| {
        Error::BadValue(format!("no source package is known for kernel {}", kernel.release))
    })?;
    let name = format!("linux-source-{version}");
    packages.cache().ensure_tree(&format!("{tree}/{version}"), |folder| {
        let package = folder.join(".package");
        fs::create_dir(&package).context("create", &package)?;
        packages.fill(&package, &format!("source of kernel {version}"), Fetch::Exactly(&[&name]))?;
        unpack_source(&package.join(format!("usr/src/{name}.tar.xz")), folder, part)?;
        fs::remove_dir_all(&package).context("remove", &package)
    })
}

/// The first two numbers of a release: `6.1` of `6.1.0-56-amd64`.
pub fn version(release: &str) -> Option<&str> {
    let end = release.match_indices(['.', '-', '+']).nth(1).map_or(release.len(), |(at, _)| at);
    let (major, minor) = release[..end].split_once('.')?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (number(major) && number(minor)).then_some(&release[..end])
}

fn read_pin(cache: &Cache, name: &str) -> Option<Pin> {
    let text = fs::read_to_string(cache.path(&format!("pins/{name}"))).ok()?;
    serde_json::from_str(&text).ok()
}

fn pin(packages: &Packages, name: &str) -> Result<Pin> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let version = name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(plain);
    if !version {
        return Err(unknown(name, &[]));
    }
    if let Some(pin) = read_pin(packages.cache(), name) {
        return Ok(pin);
    }
    let known = packages.names("linux-image-").map_err(|error| match error {
        Error::Unreachable { cache, .. } => Error::Unreachable { what: format!("kernel {name}"), cache },
        other => other,
    })?;
    let Some(release) = newest(name, &known) else {
        let releases: Vec<&str> = known.iter().filter_map(|package| release_of(package)).collect();
        return Err(unknown(name, &releases));
    };
    // Newer kernels have several packages: the image, the modules, and lists such as `modules.builtin`.
    let mut parts = Vec::new();
    for part in ["binary", "modules", "base"] {
        let package = format!("linux-{part}-{release}");
        if packages.names(&package)?.contains(&package) {
            parts.push(package);
        }
    }
    if parts.is_empty() {
        parts.push(format!("linux-image-{release}"));
    }
    let pin = Pin { release: release.to_owned(), packages: parts };
    let text = serde_json::to_string(&pin).expect("a pin is plain data");
    packages.cache().write_atomically(&format!("pins/{name}"), &text)?;
    Ok(pin)
}

/// The error for an unknown kernel name; where no name is similar, it lists the short names.
fn unknown(name: &str, releases: &[&str]) -> Error {
    let mut near = suggest(name, NAMES.into_iter().chain(releases.iter().copied()));
    if near.is_empty() {
        near = NAMES.map(str::to_owned).to_vec();
    }
    Error::Unknown { what: "kernel", name: name.to_owned(), near }
}

/// Debian's flavors of a build, as the end of its name; the ordinary one has none.
const FLAVORS: [&str; 2] = ["cloud", "rt"];

/// A release or name in two parts: the build, and its flavor (empty for the ordinary one).
fn flavored(name: &str) -> (&str, &str) {
    let of = |flavor: &&'static str| Some((name.strip_suffix(*flavor)?.strip_suffix('-')?, *flavor));
    FLAVORS.iter().find_map(of).unwrap_or((name, ""))
}

/// The release in the name of an image package; `None` for debug and unsigned ones.
fn release_of(package: &str) -> Option<&str> {
    let release = package.strip_prefix("linux-image-")?;
    let special = ["unsigned", "-dbg", "-image-"].iter().any(|part| release.contains(part));
    (release.starts_with(|c: char| c.is_ascii_digit()) && release.ends_with("-amd64") && !special)
        .then_some(release)
}

/// The newest release that `name` stands for: equal to it, or it followed by a further part; of its flavor alone.
fn newest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let (name, flavor) = flavored(name.strip_suffix("-amd64").unwrap_or(name));
    known
        .iter()
        .filter_map(|package| release_of(package))
        .filter(|release| {
            let (build, its) = flavored(release.trim_end_matches("-amd64"));
            let rest = build.strip_prefix(name).filter(|_| its == flavor);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+']))
        })
        .max_by_key(|release| {
            let (upstream, debian) = release.split_once('+').unwrap_or((release, ""));
            let numbers = |text: &str| {
                text.split(|c: char| !c.is_ascii_digit())
                    .filter_map(|n| n.parse::<u32>().ok())
                    .collect::<Vec<_>>()
            };
            // Of two builds of one version, the one for the older Debian: its build programs run on both.
            let older = numbers(debian).first().map_or(0, |number| u32::MAX - number);
            (numbers(flavored(upstream.trim_end_matches("-amd64")).0), older)
        })
}

fn from_path(cache: &Cache, wanted: &str) -> Result<Kernel> {
    let mut path = PathBuf::from(wanted);
    let mut release = None;
    if !path.exists()
        && let Some((folder, name)) = wanted.rsplit_once(':')
    {
        path = PathBuf::from(folder);
        release = Some(name.to_owned());
    }
    let bad = |why: &str| Error::BadKernel { path: path.clone(), why: why.to_owned() };
    if !path.exists() {
        return Err(bad(
            "no such file or folder; a kernel is 6.1, 6.12, 7.2, host, a package, a folder, or /boot/vmlinuz-RELEASE",
        ));
    }
    if !path.is_file() && !path.is_dir() {
        return Err(bad("it is neither a file nor a folder"));
    }
    let is_package =
        path.extension().is_some_and(|extension| extension == "deb") || foreign::is_package(&path);
    if path.is_file() && !is_package {
        return match root_and_release(&path) {
            Some((root, release)) => below(&root, &release),
            None => Err(bad(
                "it is no package (.deb, .rpm, .pkg.tar.zst), and no boot/vmlinuz-RELEASE with lib/modules/RELEASE beside 'boot'",
            )),
        };
    }
    let path = path.canonicalize().context("find", &path)?;
    if let Some(built) = path.is_dir().then(|| foreign::built(cache, &path)).flatten() {
        let foreign::Built { release, vmlinuz, modules } = built?;
        return Ok(Kernel { release, vmlinuz, modules });
    }
    let mut files = if path.is_dir() {
        [deb_files(&path)?, foreign::packages(&path)?].concat()
    } else {
        vec![path.clone()]
    };
    files.sort();
    if files.is_empty() {
        return in_tree(&path, release.as_deref());
    }
    let tree = cache.ensure_tree(&format!("kernels/deb-{}", digest(&files)?), |folder| {
        for file in &files {
            let unpacked =
                if foreign::is_package(file) { foreign::unpack(file, folder) } else { unpack(file, folder) };
            unpacked.map_err(|error| match error {
                Error::Program { why, .. } => Error::BadKernel { path: file.clone(), why },
                other => other,
            })?;
        }
        Ok(())
    })?;
    in_tree(&tree, release.as_deref()).map_err(|error| match error {
        Error::BadKernel { why, .. } => Error::BadKernel { path: path.clone(), why },
        other => other,
    })
}

/// Root and release of an installed kernel, by the name of one of its files. Links are not followed, since
/// the name contains both.
pub(crate) fn root_and_release(path: &Path) -> Option<(PathBuf, String)> {
    let path = std::path::absolute(path).ok()?;
    let name = path.file_name()?.to_str()?;
    let path = if name == "build" { path.parent()? } else { &path };
    let name = path.file_name()?.to_str()?;
    let folder = path.parent()?;
    let (release, inside) = if let Some(release) = name.strip_prefix("vmlinuz-") {
        (release, "boot")
    } else if let Some(release) = name.strip_prefix("linux-headers-") {
        (release, "usr/src")
    } else {
        (name, "lib/modules")
    };
    let root = folder.ends_with(inside).then(|| folder.ancestors().nth(inside.split('/').count()))??;
    // Where `/lib` is a link to `/usr/lib`, both names are in use.
    let root = if inside == "lib/modules" && root.ends_with("usr") { root.parent()? } else { root };
    Some((root.to_path_buf(), release.to_owned()))
}

/// The installed kernel with this release, below the root of its machine.
pub(crate) fn below(root: &Path, release: &str) -> Result<Kernel> {
    let modules = ["lib/modules", "usr/lib/modules"].map(|folder| root.join(folder).join(release));
    let bad = |path: &Path, why: String| Error::BadKernel { path: path.to_path_buf(), why };
    let modules = modules.iter().find(|folder| folder.is_dir()).cloned().ok_or_else(|| {
        bad(&modules[0], format!("there are no modules of kernel {release} on this machine"))
    })?;
    let images = [root.join("boot").join(format!("vmlinuz-{release}")), modules.join("vmlinuz")];
    let vmlinuz = images
        .iter()
        .find(|image| image.is_file())
        .cloned()
        .ok_or_else(|| bad(&images[0], "there is no such image of the kernel".into()))?;
    Ok(Kernel { release: release.to_owned(), vmlinuz, modules })
}

fn digest(files: &[PathBuf]) -> Result<String> {
    let mut hash = Sha256::new();
    for path in files {
        let mut file = fs::File::open(path).context("open", path)?;
        std::io::copy(&mut file, &mut hash).context("read", path)?;
    }
    Ok(format!("{:.20x}", hash.finalize()))
}

/// The kernel in a folder of unpacked packages.
fn in_tree(tree: &Path, release: Option<&str>) -> Result<Kernel> {
    let bad = |why: String| Error::BadKernel { path: tree.to_path_buf(), why };
    let mut found = Vec::new();
    for base in ["lib/modules", "usr/lib/modules", "modules", "."] {
        let Ok(entries) = fs::read_dir(tree.join(base)) else { continue };
        for entry in entries.flatten() {
            let modules = entry.path();
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if !modules.join("kernel").is_dir() {
                continue;
            }
            let images = [modules.join("vmlinuz"), tree.join("boot").join(format!("vmlinuz-{name}"))];
            let image = images.into_iter().find(|image| image.is_file());
            if let Some(vmlinuz) = image.or_else(|| foreign::installed(tree, &name)) {
                found.push(Kernel { release: name, vmlinuz, modules });
            }
        }
    }
    found.sort_by(|a, b| a.release.cmp(&b.release));
    found.dedup_by(|a, b| a.release == b.release);
    if let Some(release) = release {
        let names: Vec<String> = found.iter().map(|kernel| kernel.release.clone()).collect();
        let kernel = found.into_iter().find(|kernel| kernel.release == release);
        return kernel.ok_or_else(|| bad(format!("it holds no kernel {release}, but: {}", names.join(", "))));
    }
    match found.len() {
        0 => Err(bad(
            "it holds no vmlinuz with its modules; a kernel of several packages (image, modules, lists of them) needs all of them in one folder".into(),
        )),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<&str> = found.iter().map(|kernel| kernel.release.as_str()).collect();
            Err(bad(format!("it holds several kernels; add one of these after a colon: {}", names.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_build_is_chosen_by_number_and_older_debian() {
        let known: Vec<String> = [
            "linux-image-6.1.0-9-amd64",
            "linux-image-6.1.0-56-amd64",
            "linux-image-6.1.0-57-amd64-dbg",
            "linux-image-6.1.0-57-cloud-amd64",
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.12.117+deb13-amd64",
            "linux-image-6.12.99+deb13-amd64",
            "linux-image-7.2.12+deb13-rt-amd64",
            "linux-image-amd64",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(newest("6.1", &known), Some("6.1.0-56-amd64"));
        assert_eq!(newest("6.1.0-9", &known), Some("6.1.0-9-amd64"));
        assert_eq!(newest("6.1.0-9-amd64", &known), Some("6.1.0-9-amd64"));
        assert_eq!(newest("6.1-cloud", &known), Some("6.1.0-57-cloud-amd64"));
        assert_eq!(newest("6.1.0-57-cloud-amd64", &known), Some("6.1.0-57-cloud-amd64"));
        assert_eq!(newest("7.2-rt", &known), Some("7.2.12+deb13-rt-amd64"));
        assert_eq!(newest("6.1-rt", &known), None);
        assert_eq!(newest("6.12", &known), Some("6.12.117+deb12-amd64"));
        assert_eq!(newest("7.2", &known), None);
        assert_eq!(newest("6", &known), Some("6.12.117+deb12-amd64"));
    }

    #[test]
    fn the_version_of_a_release_is_its_first_two_numbers() {
        assert_eq!(version("6.1.0-56-amd64"), Some("6.1"));
        assert_eq!(version("6.12.117+deb12-amd64"), Some("6.12"));
        assert_eq!(version("7.2+x"), Some("7.2"));
        for odd in ["", "6", "6.", "6-1-amd64", "../etc.1", "6.1é"] {
            assert_eq!(version(odd), None, "{odd}");
        }
    }

    #[test]
    fn of_a_source_only_what_drivers_need_is_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("linux-source-1.0");
        for file in
            ["drivers/net/a.c", "drivers/gpu/b.c", "drivers/net/arch/c.h", "arch/x86/d.c", "tools/e.c"]
        {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        let archive = folder.path().join("linux.tar.xz");
        let mut tar = std::process::Command::new("tar");
        let tar = tar.arg("-C").arg(folder.path()).args(["-cJf"]).arg(&archive).arg("linux-source-1.0");
        assert!(tar.status().unwrap().success());
        let out = folder.path().join("out");
        fs::create_dir(&out).unwrap();
        unpack_source(&archive, &out, SourcePart::Kernel).unwrap();
        assert!(out.join("drivers/net/a.c").is_file());
        assert!(out.join("drivers/net/arch/c.h").is_file());
        for gone in ["drivers/gpu", "arch", "tools", "linux-source-1.0"] {
            assert!(!out.join(gone).exists(), "{gone}");
        }
        fs::write(&archive, "not an archive").unwrap();
        assert!(
            unpack_source(&archive, &out, SourcePart::Kernel)
                .unwrap_err()
                .to_string()
                .contains("cannot be unpacked")
        );
    }

    #[test]
    fn headers_come_from_the_build_or_from_the_packages_of_a_kernel() {
        let (cache, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let packages = Packages::new(&Cache::at(cache.path()).unwrap());
        let (release, modules) = ("6.1.0-own".to_owned(), root.path().join("lib/modules/6.1.0-own"));
        let kernel = Kernel { release, vmlinuz: root.path().join("vmlinuz"), modules: modules.clone() };
        let found = || headers_tree(&packages, &kernel);
        let error = found().unwrap_err();
        let said = error.to_string();
        assert!(
            error.is_usage() && said.contains("kernel 6.1.0-own has no headers (Module.symvers)"),
            "{said}"
        );
        for folder in
            ["usr/src/kernels/6.1.0-own", "usr/src/linux-headers-6.1.0-own", "lib/modules/6.1.0-own/build"]
        {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(SYMBOLS), "").unwrap();
            assert_eq!(found().unwrap(), folder.canonicalize().unwrap());
        }
    }

    #[test]
    fn a_folder_with_several_kernels_asks_for_one() {
        let folder = tempfile::tempdir().unwrap();
        for release in ["1.0", "2.0"] {
            fs::create_dir_all(folder.path().join(format!("lib/modules/{release}/kernel"))).unwrap();
            fs::create_dir_all(folder.path().join("boot")).unwrap();
            fs::write(folder.path().join(format!("boot/vmlinuz-{release}")), "").unwrap();
        }
        let message = in_tree(folder.path(), None).unwrap_err().to_string();
        assert!(message.ends_with("after a colon: 1.0, 2.0"), "{message}");
        assert_eq!(in_tree(folder.path(), Some("2.0")).unwrap().release, "2.0");
        assert!(in_tree(folder.path(), Some("3.0")).is_err());
    }
}
