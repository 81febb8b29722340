//! Kernel modules that are built from sources beside the program, against the headers packages of a kernel.

use crate::error::{Error, Result};
use crate::fetch::group;
use crate::fetch::packages::Packages;
use crate::kernel::kernels::{self, Kernel};
use crate::qemu::Qemu;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder `name` that belongs to the program and holds the file `mark`. It is in the checkout that the
/// program was built in, or the environment's `variable` names it.
pub fn folder(name: &str, mark: &str, variable: &str) -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
        return Ok(PathBuf::from(folder));
    }
    let program = std::env::current_exe();
    let program = program.map_err(|error| Error::io("find", Path::new("the guardrail program"), error))?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    program
        .ancestors()
        .chain(here)
        .map(|folder| folder.join(name))
        .find(|folder| folder.join(mark).is_file())
        .ok_or_else(|| {
            Error::BadValue(format!(
                "the folder {name} is not beside the program; set {variable} to say where it is"
            ))
        })
}

/// Runs a build script: `SCRIPT [OPTIONS] HEADERS RELEASE REST...`. Its own output explains a failure.
pub fn run(
    packages: &Packages,
    kernel: &Kernel,
    script: &Path,
    options: &[&str],
    rest: &[&OsStr],
) -> Result<()> {
    let headers = kernels::headers_tree(packages, kernel)?;
    run_with(packages, &headers, &kernel.release, script, options, rest)
}

/// Does the same with a headers tree that exists already.
pub fn run_with(
    packages: &Packages,
    headers: &Path,
    release: &str,
    script: &Path,
    options: &[&str],
    rest: &[&OsStr],
) -> Result<()> {
    let name = format!("{}/{}", name_of(script.parent()), name_of(Some(script)));
    let failed = |why: String, said: String| Error::Build { program: name.clone(), why, said };
    let attempt = |library: Option<&Path>| {
        let mut command = Command::new(script);
        if let Some(library) = library {
            command.arg("--runtime").arg(library);
        }
        command.args(options).arg(headers).arg(release).args(rest).stdin(Stdio::null());
        command.env("KBUILD_PROBES", packages.cache().path(&format!("{PROBES}/{release}")));
        let output = group::output(&mut command).map_err(|error| failed(error.to_string(), String::new()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(reason(&said, &name), said.into_owned())),
        }
    };
    let library = packages.cache().path("qemu");
    if library.join("usr/lib/x86_64-linux-gnu/libelf.so.1").exists() {
        return attempt(Some(&library));
    }
    match attempt(None) {
        Err(Error::Build { why, .. }) if why.contains(WANTS_LIBRARY) => {
            attempt(Some(&Qemu::fetched(packages)?))
        }
        built => built,
    }
}

/// The folder of the cache for what compilers said to kbuild's probes, by the kernel's release.
const PROBES: &str = "probes";

/// The script prints this where build programs of a newer kernel need a newer C library. The private QEMU
/// comes with one.
const WANTS_LIBRARY: &str = "give --runtime DIR";

fn name_of(path: Option<&Path>) -> String {
    path.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
}

/// The line of a build's output that explains why it failed.
fn reason(text: &str, script: &str) -> String {
    let own = |line: &&str| {
        line.contains("error") || line.starts_with(&format!("{script}: ")) || line.contains("/kbuild: ")
    };
    let last = text.lines().rev().find(own).or(text.lines().last());
    last.unwrap_or("it gave no reason").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_is_told_by_its_last_error() {
        let text = "  CC x.o\nx.c:1: error: no\nmake: *** [x] Error 1\nmake: leaving\n";
        assert_eq!(reason(text, "zoo/build"), "x.c:1: error: no");
        assert_eq!(reason("zoo/build: no make here\n", "zoo/build"), "zoo/build: no make here");
        assert_eq!(reason("", "zoo/build"), "it gave no reason");
    }

    #[test]
    fn folders_of_the_checkout_are_found() {
        assert!(
            folder("runtime", "Kbuild", "GUARDRAIL_NO_SUCH_VARIABLE")
                .unwrap()
                .join("include/guardrail_abi.h")
                .is_file()
        );
        let message = folder("no-such-folder", "x", "GUARDRAIL_NO_SUCH_VARIABLE").unwrap_err().to_string();
        assert!(message.contains("set GUARDRAIL_NO_SUCH_VARIABLE"), "{message}");
    }
}
