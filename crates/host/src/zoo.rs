//! The zoo: drivers with planted bugs, built from their sources at the first request.

use crate::error::HostError;
use crate::folders;
use crate::from_source;
use crate::progress::Progress;
use guardrail_vm::kbuild;
use guardrail_vm::kernels::{self, Kernel};
use guardrail_vm::modules::{LoadPlan, Modules};
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::{Error, error::suggest};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::{fs, io};

/// A folder with one of these files belongs to the zoo. The file describes the driver's bug, or the faults
/// that can be planted in it.
const SAYS: [&str; 2] = ["expect.json", "faults.json"];

/// The zoo's driver that an argument names: `zoo/NAME`, or `zoo/NAME_ok` (or `-ok`) for its correct twin.
pub fn named(driver: &str) -> Option<&str> {
    driver.strip_prefix("zoo/").filter(|name| !name.contains('/') && !name.ends_with(".ko"))
}

/// Whether a driver is given as sources. The zoo's folders, seen from the one around it, are none.
fn is_source(driver: &str) -> bool {
    named(driver).is_none() && from_source::is_source(driver)
}

/// Fetches and checks what a run needs; drivers of the zoo are built for its kernel.
pub fn prepare(
    packages: &Packages,
    request: Request<'_>,
    progress: &Progress,
) -> Result<Prepared, HostError> {
    say_gap(progress);
    let mut drivers = vec![request.driver.to_owned()];
    drivers.extend_from_slice(request.more);
    let drivers = built_for(packages, request.kernel, drivers, progress)?;
    let request = Request { driver: &drivers[0], more: &drivers[1..], ..request };
    Ok(Prepared::new(packages, &folders::parser()?, request, &mut |step| progress.step(step))?)
}

/// Says once what this machine does not keep from QEMU and the gate.
fn say_gap(progress: &Progress) {
    static SAID: Once = Once::new();
    let landlock = guardrail_jail::available();
    let files = landlock.gap().map(|gap| format!("{gap} (Landlock is {landlock})"));
    let gaps = [files, guardrail_jail::apart().gap().map(str::to_owned)];
    let gaps: Vec<String> = gaps.into_iter().flatten().collect();
    if !gaps.is_empty() {
        SAID.call_once(|| progress.note(&format!("of QEMU and the gate: {}", gaps.join("; "))));
    }
}

/// A driver with what it needs. It is a module's name, a path, or `zoo/NAME`, which is built for the kernel.
pub fn plan(
    packages: &Packages,
    parser: &Parser,
    kernel: &Kernel,
    driver: &str,
) -> Result<LoadPlan, HostError> {
    Ok(Modules::of(kernel, parser)?.plan(&provide(packages, kernel, driver)?)?)
}

/// The same driver, or the file that is built of it where it is of the zoo, or given as sources.
pub fn provide(packages: &Packages, kernel: &Kernel, driver: &str) -> Result<String, HostError> {
    if is_source(driver) {
        let module = from_source::module(packages, kernel, driver, &Progress::silent())?;
        return Ok(module.display().to_string());
    }
    let built = match named(driver).filter(|_| !Path::new(driver).is_file()) {
        Some(name) => modules(packages, kernel, &[name])?.pop(),
        None => None,
    };
    Ok(built.map_or(driver.to_owned(), |path| path.display().to_string()))
}

/// The same drivers, with those of the zoo and those that are given as sources replaced by files that are built for the kernel.
fn built_for(
    packages: &Packages,
    kernel: &str,
    mut drivers: Vec<String>,
    progress: &Progress,
) -> Result<Vec<String>, HostError> {
    let ours = |driver: &String| named(driver).filter(|_| !Path::new(driver).is_file()).map(str::to_owned);
    let (places, names): (Vec<usize>, Vec<String>) =
        drivers.iter().enumerate().filter_map(|(i, driver)| Some((i, ours(driver)?))).unzip();
    if names.is_empty() && !drivers.iter().any(|driver| is_source(driver)) {
        return Ok(drivers);
    }
    let kernel = kernels::find(packages, kernel)?;
    for source in drivers.iter_mut().filter(|driver| is_source(driver)) {
        *source = from_source::module(packages, &kernel, source, progress)?.display().to_string();
    }
    if names.is_empty() {
        return Ok(drivers);
    }
    progress.step("the zoo");
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (place, path) in places.into_iter().zip(modules(packages, &kernel, &names)?) {
        drivers[place] = path.display().to_string();
    }
    Ok(drivers)
}

/// The module files of these drivers of the zoo. They are built for `kernel` together, unless that was done
/// before.
pub fn modules(packages: &Packages, kernel: &Kernel, names: &[&str]) -> Result<Vec<PathBuf>, HostError> {
    let zoo = folder()?;
    let mut bugs = names.iter().map(|name| known(&zoo, name)).collect::<Result<Vec<_>, _>>()?;
    bugs.sort();
    bugs.dedup();
    let mut hasher = DefaultHasher::new();
    for bug in &bugs {
        bug.hash(&mut hasher);
        digest(&zoo, bug).map_err(HostError::io("read", zoo.display()))?.hash(&mut hasher);
    }
    let tree = format!("zoo/{}/{:016x}", kernel.release, hasher.finish());
    if !packages.cache().path(&tree).is_dir() {
        build(packages, kernel, &zoo, &bugs, &tree)?;
    }
    names.iter().map(|name| built(packages, &tree, name)).collect()
}

/// The module file of a driver in a built tree.
fn built(packages: &Packages, tree: &str, name: &str) -> Result<PathBuf, HostError> {
    let file = format!("{}.ko", name.replace('-', "_"));
    let path = packages.cache().path(tree).join(&file);
    match path.is_file() {
        true => Ok(path),
        false => Err(HostError::Run(format!("the zoo was built, but without {file}"))),
    }
}

fn build(
    packages: &Packages,
    kernel: &Kernel,
    zoo: &Path,
    bugs: &[String],
    tree: &str,
) -> Result<(), HostError> {
    packages.cache().ensure_tree(tree, |out| {
        let rest: Vec<&OsStr> = [out.as_os_str()].into_iter().chain(bugs.iter().map(OsStr::new)).collect();
        kbuild::run(packages, kernel, &zoo.join("build"), &[], &rest)
    })?;
    Ok(())
}

/// The zoo beside the program: the checkout that it was built in, or the folder that `$GUARDRAIL_ZOO` names.
pub fn folder() -> Result<PathBuf, HostError> {
    Ok(kbuild::folder("zoo", "build", "GUARDRAIL_ZOO")?)
}

/// The drivers of a zoo by name, each with its folder: `KIND/NAME`, or `NAME` in a zoo without kinds.
pub fn drivers(zoo: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let mut drivers = BTreeMap::new();
    for folder in folders(zoo)? {
        let mut candidates = folders(&folder)?;
        candidates.push(folder);
        for candidate in candidates {
            if SAYS.iter().any(|file| candidate.join(file).is_file())
                && let Some(name) = candidate.file_name()
            {
                drivers.insert(name.to_string_lossy().into_owned(), candidate);
            }
        }
    }
    Ok(drivers)
}

fn folders(of: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(of)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.is_dir()).collect())
}

/// The driver of the zoo for a name, which may be its own or that of its twin.
fn known(zoo: &Path, name: &str) -> Result<String, HostError> {
    let drivers = drivers(zoo).map_err(HostError::io("list", zoo.display()))?;
    let is = |wanted: &str| drivers.contains_key(wanted);
    match name.strip_suffix("-ok").or(name.strip_suffix("_ok")) {
        Some(bug) if is(bug) => return Ok(bug.to_owned()),
        _ if is(name) => return Ok(name.to_owned()),
        _ => {}
    }
    let near =
        suggest(name, drivers.keys().map(String::as_str)).into_iter().map(|near| format!("zoo/{near}"));
    Err(Error::Unknown { what: "driver", name: format!("zoo/{name}"), near: near.collect() }.into())
}

/// A digest of the sources of a driver of the zoo; `None` where there is no such driver.
pub fn sources(name: &str) -> Option<u64> {
    let zoo = folder().ok()?;
    digest(&zoo, &known(&zoo, name).ok()?).ok()
}

/// A digest that changes with the sources, so that a build of older ones is not used.
fn digest(zoo: &Path, bug: &str) -> io::Result<u64> {
    let script = zoo.join("build").canonicalize()?;
    let mut files = vec![script.with_file_name("../scripts/kbuild"), script];
    let own = drivers(zoo)?.remove(bug).ok_or(io::ErrorKind::NotFound)?;
    for folder in [zoo.join("lib"), own] {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "c" || extension == "h" || extension == "sh")
            {
                files.push(path);
            }
        }
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        fs::read(file)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_belong_to_the_zoo() {
        assert_eq!(named("zoo/leak-ok"), Some("leak-ok"));
        assert_eq!(named("zoo/leak/leak.ko"), None);
        assert_eq!(named("e1000"), None);
    }
}
