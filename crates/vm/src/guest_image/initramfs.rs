//! The guest's root: busybox, ethtool, the modules in load order and what admits them, init, the workload.

use crate::cpio::Archive;
use crate::error::{Context, Error, Result};
use crate::exercise::catalog::Class;
use crate::exercise::settings::Parameters;
use crate::exercise::workload::{SCRIPT_IN_ROOT, Workload, is_variable, shell_quoted};
use crate::fetch::software::Software;
use crate::guest_image::brought::Brought;
use crate::guest_image::prepare::Companion;
use crate::guest_image::root::{self, Root};
use crate::guest_image::{admission, firmware};
use crate::kernel::modules::{LoadPlan, ModuleFile};
use crate::parser::Parser;
use std::fs;
use std::io::Write;
use std::path::Path;

const INIT: &str = include_str!("../../../../guest/init");

/// Runs the Debian program through the loader beside it.
const ETHTOOL: &str = "#!/bin/sh\nexec /guardrail/lib/ld-linux-x86-64.so.2 --library-path /guardrail/lib /guardrail/ethtool \"$@\"\n";

/// Everything that a guest's initramfs contains.
#[derive(Clone, Debug)]
pub struct Contents<'a> {
    /// The driver and its dependencies in load order.
    pub plan: &'a LoadPlan,
    /// Further modules to load before the driver.
    pub also: &'a [ModuleFile],
    /// The parameters of each module.
    pub parameters: &'a Parameters,
    /// True where the driver is expected to bind a device.
    pub wants_device: bool,
    /// The class of the driver's device.
    pub class: Class,
    /// The script that exercises the driver.
    pub workload: &'a Workload,
    /// The programs that the workload uses; `None` where it uses none.
    pub software: Option<&'a Software>,
    /// True where each firmware file that a driver names is there, of zeros.
    pub firmware: bool,
    /// What the user brings along.
    pub brought: &'a Brought,
    /// The root of the user's, in which the workload runs; `None` for the guest's own.
    pub root: Option<&'a Root>,
    /// The script of the user's that runs there; `None` where a program does.
    pub inside: Option<&'a str>,
    /// Further files for the guest's folder `/guardrail`.
    pub files: &'a [(String, Vec<u8>)],
    /// Drivers that run in turn after the first.
    pub more: &'a [Companion],
    /// Variables for the workload; later ones win.
    pub variables: &'a [(String, String)],
    /// Who reads the names of guarded modules.
    pub parser: &'a Parser,
}

/// Builds the archive from the tree of the guest's programs.
pub fn build(tree: &Path, contents: &Contents<'_>) -> Result<Vec<u8>> {
    let mut archive = base(tree, contents)?;
    of_run(&mut archive, contents)?;
    Ok(archive.finish())
}

/// The archive of a guest that waits for the files of its run, which it reads by this module.
pub fn waiting(tree: &Path, contents: &Contents<'_>, reader: &[u8]) -> Result<Vec<u8>> {
    let mut archive = base(tree, contents)?;
    archive.file("guardrail/reader.ko", 0o644, reader);
    Ok(archive.finish())
}

/// The files of a run, for such a guest, compressed.
pub fn awaited(contents: &Contents<'_>) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    of_run(&mut archive, contents)?;
    compressed(&archive.finish())
}

/// About how many bytes the files of a run have, before they are compressed.
pub fn size_of_run(contents: &Contents<'_>) -> usize {
    let files = contents.files.iter().map(|(_, bytes)| bytes.len());
    modules(contents).map(|module| module.bytes.len()).chain(files).sum::<usize>()
        + contents.brought.bytes()
        + contents.root.map_or(0, Root::bytes)
}

/// All modules that a run loads.
fn modules<'a>(contents: &Contents<'a>) -> impl Iterator<Item = &'a ModuleFile> {
    let Contents { plan, also, more, .. } = *contents;
    let plans = std::iter::once(plan).chain(more.iter().map(|companion| &companion.plan));
    plans.flat_map(|plan| plan.before.iter().chain([&plan.driver])).chain(also)
}

/// What a guest has before it has the files of its run.
fn base(tree: &Path, contents: &Contents<'_>) -> Result<Archive> {
    let mut archive = Archive::new();
    for folder in [
        "bin",
        "sbin",
        "dev",
        "proc",
        "sys",
        "tmp",
        "guardrail",
        "guardrail/modules",
        "guardrail/lib",
        "guardrail/more",
    ] {
        archive.folder(folder);
    }
    admission::folders().iter().for_each(|folder| archive.folder(folder));
    // The kernel opens it for init before any script can create it.
    archive.device("dev/console", 0o600, 5, 1);
    let program = |archive: &mut Archive, name: &str, places: &[&str]| -> Result<()> {
        let path = places.iter().map(|place| tree.join(place)).find(|path| path.is_file());
        let path = path.ok_or_else(|| {
            Error::BadValue(format!(
                "the cached tree {} holds no {name}; remove that folder and run again",
                tree.display()
            ))
        })?;
        archive.file(name, 0o755, &fs::read(&path).context("read", &path)?);
        Ok(())
    };
    program(&mut archive, "bin/busybox", &["bin/busybox", "usr/bin/busybox"])?;
    archive.link("bin/sh", "busybox");
    // The libraries stay out of the usual folders. The static busybox would find them when it looks up a
    // name, and would crash where their build differs from its own.
    program(&mut archive, "guardrail/ethtool", &["sbin/ethtool", "usr/sbin/ethtool"])?;
    archive.file("sbin/ethtool", 0o755, ETHTOOL.as_bytes());
    for file in ["ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libmnl.so.0"] {
        let (old, new) = (format!("lib/x86_64-linux-gnu/{file}"), format!("usr/lib/x86_64-linux-gnu/{file}"));
        program(&mut archive, &format!("guardrail/lib/{file}"), &[&old, &new])?;
    }
    if let Some(software) = contents.software {
        software.add_to(&mut archive, contents.workload.software)?;
    }
    archive.file("init", 0o755, INIT.as_bytes());
    Ok(archive)
}

/// The modules, the workloads, and what both need.
fn of_run(archive: &mut Archive, contents: &Contents<'_>) -> Result<()> {
    let mut loaded = 0;
    let mut names: Vec<&str> = Vec::new();
    for module in contents
        .plan
        .before
        .iter()
        .chain(contents.also)
        .chain(contents.more.iter().flat_map(|m| &m.plan.before))
    {
        if names.contains(&module.name.as_str()) || module.name == contents.plan.driver.name {
            continue;
        }
        names.push(&module.name);
        archive.file(&format!("guardrail/modules/{loaded:03}-{}.ko", module.name), 0o644, &module.bytes);
        loaded += 1;
    }
    for (i, companion) in contents.more.iter().enumerate() {
        let folder = format!("guardrail/more/{i:03}");
        archive.folder(&folder);
        let name = &companion.plan.driver.name;
        let config = format!(
            "DRIVER={}\nPARAMETERS={}\nWANTS_DEVICE={}\n",
            shell_quoted(name),
            shell_quoted(&words(contents, name)),
            if companion.plan.binds_devices() { "1" } else { "" }
        );
        archive.file(&format!("{folder}/driver.ko"), 0o644, &companion.plan.driver.bytes);
        archive.file(&format!("{folder}/workload"), 0o644, companion.workload.script.as_bytes());
        archive.file(&format!("{folder}/config"), 0o644, config.as_bytes());
    }
    archive.file("guardrail/driver.ko", 0o644, &contents.plan.driver.bytes);
    archive.file("guardrail/workload", 0o644, contents.workload.script.as_bytes());
    archive.file("guardrail/config", 0o644, config(contents)?.as_bytes());
    if contents.firmware {
        firmware::add_to(archive, modules(contents));
    }
    // What the user brings replaces it.
    contents.brought.add_to(archive);
    contents.root.inspect(|root| root.add_to(archive));
    if let Some(script) = contents.inside {
        archive.file(SCRIPT_IN_ROOT, 0o644, script.as_bytes());
    }
    for (name, bytes) in contents.files {
        archive.file(&format!("guardrail/{name}"), 0o755, bytes);
    }
    admit(archive, contents)
}

/// The files for a guest that was saved before it loaded the driver: what differs between runs, compressed.
pub fn given(contents: &Contents<'_>) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    archive.file("guardrail/driver.ko", 0o644, &contents.plan.driver.bytes);
    archive.file("guardrail/config", 0o644, config(contents)?.as_bytes());
    admit(&mut archive, contents)?;
    compressed(&archive.finish())
}

fn compressed(archive: &[u8]) -> Result<Vec<u8>> {
    // The guest's unpacker supports no other checksum.
    let stream = liblzma::stream::Stream::new_easy_encoder(1, liblzma::stream::Check::Crc32);
    let stream = stream.map_err(|error| Error::BadValue(format!("cannot compress: {error}")))?;
    let mut packed = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    let written = packed.write_all(archive).and_then(|()| packed.finish());
    written.context("compress", Path::new("the driver"))
}

/// Adds what admits the guarded modules of a guest. A file that is no module to admit has a name without `.ko`.
fn admit(archive: &mut Archive, contents: &Contents<'_>) -> Result<()> {
    let Contents { files, parser, .. } = contents;
    let further = files.iter().filter(|(name, _)| name.ends_with(".ko")).map(|(_, bytes)| bytes.as_slice());
    let modules = modules(contents).map(|module| module.bytes.as_slice()).chain(further);
    for (path, lines) in admission::files(parser, modules)? {
        archive.file(&path, 0o644, lines.as_bytes());
    }
    Ok(())
}

/// The parameters of a module, as words for insmod.
fn words(contents: &Contents<'_>, module: &str) -> String {
    contents.parameters.get(module).map_or(String::new(), |words| words.join(" "))
}

/// The variables that init and the workload read.
fn config(contents: &Contents<'_>) -> Result<String> {
    let mut text = String::new();
    let mut set = |name: &str, value: &str| {
        text += &format!("{name}={}\n", shell_quoted(value));
    };
    for (name, value) in &contents.workload.defaults {
        set(name, value);
    }
    if let Some((_, file_system)) = contents.root.and_then(Root::image) {
        set("ROOT_TYPE", file_system.name());
        set("ROOT_OPTIONS", file_system.options());
        set("ROOT_SERIAL", root::SERIAL);
    }
    for (name, value) in contents.variables {
        if !is_variable(name) {
            return Err(Error::BadValue(format!("'{name}' cannot be the name of a workload variable")));
        }
        set(name, value);
    }
    set("DRIVER", &contents.plan.driver.name);
    set("CLASS", contents.class.name());
    set("PARAMETERS", &words(contents, &contents.plan.driver.name));
    for module in contents.parameters.keys() {
        set(&format!("PARAMETERS_{module}"), &words(contents, module));
    }
    set("WANTS_DEVICE", if contents.wants_device { "1" } else { "" });
    Ok(text)
}
