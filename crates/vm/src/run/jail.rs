//! What the QEMU of a run may reach, and how it gets files that it cannot open by their names.

use crate::error::{Context, Error, Result};
use crate::exercise::http::Server;
use crate::guest_image::prepare::Prepared;
use crate::guest_image::root::Root;
use crate::run::machine::Files;
use crate::run::options::{DeviceSide, Kept, Options, Plugin, Start};
use crate::run::rerun::Rerun;
use crate::run::words::{memory, named};
use guardrail_jail::{Jail, Role, out_of_reach};
use std::borrow::Cow;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

/// Variables of workloads with the port of a load generator, or of another peer, on this machine.
const PORTS: [&str; 3] = ["CONTROL", "SERVER_PORT", "SINK"];

/// The jail of the QEMU that runs the guest.
pub(super) fn of_guest(
    prepared: &Prepared,
    options: &Options,
    files: Files<'_>,
    server: Option<&Server>,
) -> Jail {
    let mut jail = prepared.qemu.jail().and(&options.reach).reads(files.kernel).writes(&options.folder);
    if let Some((image, _)) = prepared.root.as_ref().and_then(Root::image) {
        jail = jail.reads(image);
    }
    for plugin in &options.plugins {
        jail = jail.reads(&plugin.library).reads(&plugin.config);
    }
    jail = match &options.rerun {
        Some(Rerun::Record(folder)) => jail.writes(folder),
        Some(Rerun::Replay(folder)) => jail.reads(folder),
        None => jail,
    };
    jail = match &options.start {
        Start::Boot => jail,
        // QEMU creates the file.
        Start::Save(file) | Start::Keep(file) => jail.writes(folder_of(file)),
        Start::Saved(file) | Start::Kept(Kept { file, .. }) => jail.reads(file),
    };
    if !options.device_elsewhere {
        jail = jail.and(&of_device(prepared, options, server));
    }
    let memory = (u64::from(options.memory_mib) << 20).saturating_add(memory(&options.qemu_arguments));
    jail.and(&named(&options.qemu_arguments)).more_memory(memory).apart(Role::Guest)
}

/// What the device and its back ends reach: files that its arguments name, and the network.
pub(super) fn of_device(prepared: &Prepared, options: &Options, server: Option<&Server>) -> Jail {
    let device = prepared.choice.device.iter();
    let words: Vec<String> =
        device.flat_map(|device| device.arguments.iter().chain(&device.options)).cloned().collect();
    let control = options.variables.iter().filter(|(name, _)| PORTS.contains(&name.as_str()));
    let control: Vec<u16> = control.flat_map(|(_, port)| port.parse()).collect();
    let ports = server.iter().map(|server| server.port()).chain(control.iter().copied());
    let jail = ports.fold(named(&words), Jail::connects);
    let jail = if control.is_empty() { jail } else { jail.udp() };
    options.forwards.iter().fold(jail, |jail, forward| match forward.udp {
        true => jail.udp(),
        false => jail.binds(forward.host),
    })
}

/// The jail of another QEMU that runs the device of a run, with the image of its disk.
pub(super) fn of_other(prepared: &Prepared, options: &Options, disk: &Path, side: &mut DeviceSide) {
    let server = options.server.as_deref();
    side.reach = prepared.qemu.jail().and(&of_device(prepared, options, server)).writes(disk);
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Files that QEMU cannot open by their names, because it has no capabilities: they are opened for it.
pub(super) struct Opened {
    qemu: PathBuf,
    files: Vec<File>,
}

impl Opened {
    /// None yet.
    pub(super) fn new(prepared: &Prepared) -> Opened {
        Opened { qemu: prepared.qemu.program.clone(), files: Vec::new() }
    }

    /// The descriptors that QEMU inherits.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        self.files.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// The name by which QEMU opens the file.
    pub(super) fn name<'a>(&mut self, path: &'a Path) -> Result<Cow<'a, Path>> {
        if out_of_reach([path].into_iter()).is_none() {
            return Ok(Cow::Borrowed(path));
        }
        let file = File::open(path).context("read", path)?;
        let name = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // The folders on the way do not count any more, but the file's own mode does.
        if out_of_reach([name.as_path()].into_iter()).is_some() {
            return Err(refused(&self.qemu, path));
        }
        self.files.push(file);
        Ok(Cow::Owned(name))
    }

    /// Names the plugins' libraries so that QEMU can open them; they may be in another user's home.
    pub(super) fn plugins(&mut self, plugins: &[Plugin]) -> Result<Vec<Plugin>> {
        let name = |plugin: &Plugin| {
            let library = self.name(&plugin.library)?.into_owned();
            Ok(Plugin { library, config: plugin.config.clone() })
        };
        plugins.iter().map(name).collect()
    }
}

/// Refuses a run whose files QEMU could not open, before it starts.
pub(super) fn refuse_out_of_reach(prepared: &Prepared, options: &Options) -> Result<()> {
    let start = match &options.start {
        Start::Saved(file) | Start::Kept(Kept { file, .. }) => Some(file.as_path()),
        Start::Boot | Start::Save(_) | Start::Keep(_) => None,
    };
    let needed = [prepared.qemu.program.as_path(), &options.folder].into_iter();
    let image = prepared.root.as_ref().and_then(Root::image).map(|(image, _)| image);
    let needed = needed.chain(image).chain(start).chain(options.reach.paths());
    match out_of_reach(needed.chain(options.plugins.iter().map(|plugin| plugin.config.as_path()))) {
        Some(path) => Err(refused(&prepared.qemu.program, &path)),
        None => Ok(()),
    }
}

fn refused(qemu: &Path, path: &Path) -> Error {
    let why = guardrail_jail::Error::OutOfReach { path: path.to_path_buf() };
    Error::BadQemu { path: qemu.to_path_buf(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn a_file_in_the_home_of_another_user_is_opened_for_qemu() {
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return eprintln!("skipped: only root reads files of other users");
        }
        let folder = tempfile::tempdir().unwrap();
        let (home, nobody) = (folder.path().join("home"), Some(65534));
        fs::create_dir(&home).unwrap();
        let (library, secret) = (home.join("tracer.so"), home.join("secret"));
        for (file, mode) in [(&library, 0o644), (&secret, 0o600), (&home, 0o700)] {
            if *file != home {
                fs::write(file, "words").unwrap();
            }
            fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
            chown(file, nobody, nobody).unwrap();
        }
        let mut opened = Opened { qemu: "/qemu".into(), files: Vec::new() };
        assert_eq!(opened.name(folder.path()).unwrap(), folder.path());
        let name = opened.name(&library).unwrap().into_owned();
        assert_eq!(name, PathBuf::from(format!("/proc/self/fd/{}", opened.descriptors()[0])));
        let why = opened.name(&secret).unwrap_err().to_string();
        assert!(why.contains("/qemu cannot be used: it runs without root's right"), "{why}");
        assert!(why.contains(&secret.display().to_string()) && opened.files.len() == 1, "{why}");
    }
}
