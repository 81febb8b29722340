//! Turns the user's request into everything that a run needs.

use crate::error::{Error, Result};
use crate::exercise::catalog::{self, Catalog, Class, Device, DeviceChoice, Entry};
use crate::exercise::settings::{self, Parameter, Parameters};
use crate::exercise::syz;
use crate::exercise::workload::{self, SHELL, Workload};
use crate::fetch::packages::{Fetch, Packages};
use crate::fetch::software::Software;
use crate::guest_image::brought::{self, Brought, GuestFile, GuestProgram};
use crate::guest_image::root::{FileSystem, GuestRoot, Root};
use crate::kernel::direct;
use crate::kernel::kernels::{self, Kernel};
use crate::kernel::modules::{LoadPlan, ModuleFile, Modules, normalized};
use crate::parser::Parser;
use crate::qemu::Qemu;
use std::path::{Path, PathBuf};

/// The user's request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// A module's name, or the path of a `.ko`.
    pub driver: &'a str,
    /// Further drivers that run in turn in the same guest; each is loaded after the one before is unloaded.
    pub more: &'a [String],
    /// Modules that are watched as well, by name: those that the drivers need, or others that are loaded before them.
    pub with: &'a [String],
    /// A file with further rows for the catalog.
    pub catalog: Option<&'a Path>,
    /// A kernel's name or path (see [`kernels::find`]).
    pub kernel: &'a str,
    /// A QEMU device instead of the catalog's.
    pub device: Option<&'a str>,
    /// A workload instead of the one that fits the class.
    pub workload: Option<&'a str>,
}

/// The disks that can have an image of a root: the device in QEMU, and its modules.
const ROOT_DISKS: [(&str, &[&str]); 2] =
    [("virtio-blk-pci", &["virtio_pci", "virtio_blk"]), ("nvme", &["nvme"])];

/// The module through which a saved guest reads its files when it continues.
pub(crate) const READER: &str = "qemu_fw_cfg";

/// The number of plans by which a synthetic device answers until the driver takes it.
const ANSWERS: &str = "ANSWERS";

/// What the user brings to a run.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    /// Files and folders for the guest.
    pub files: &'a [GuestFile],
    /// A program that becomes the workload; `None` where a script is the workload.
    pub program: Option<&'a GuestProgram>,
    /// The root in which the workload runs; `None` for the guest's own.
    pub root: Option<&'a GuestRoot>,
    /// The guest's memory, in MiB.
    pub memory_mib: u32,
}

/// A further driver of a run.
#[derive(Clone, Debug)]
pub struct Companion {
    /// The driver and its dependencies in load order.
    pub plan: LoadPlan,
    /// The script that exercises it.
    pub workload: Workload,
}

/// Everything that a run needs, fetched and checked.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The QEMU that runs the guest.
    pub qemu: Qemu,
    /// The kernel with its image and modules.
    pub kernel: Kernel,
    /// The kernel's unpacked image in the cache; `None` where the kernel must unpack itself.
    pub(crate) unpacked: Option<PathBuf>,
    /// The driver and its dependencies in load order.
    pub plan: LoadPlan,
    /// Further modules that are loaded for the device.
    pub also: Vec<ModuleFile>,
    /// The names of the modules that are watched besides the drivers, in the order in which they are loaded.
    pub with: Vec<String>,
    /// The catalog's row for the driver; `None` where it has none.
    pub listed: Option<Entry>,
    /// The device and its class.
    pub choice: DeviceChoice,
    /// True where the driver itself uses the device, not only the drivers that run in turn with it.
    takes_device: bool,
    /// The script that exercises the driver.
    pub workload: Workload,
    /// The programs that the workload uses; `None` where it uses none.
    pub software: Option<Software>,
    /// Further drivers, in the order of their turns.
    pub more: Vec<Companion>,
    /// The parameters that the user sets, by module.
    pub parameters: Parameters,
    /// What the user brings along.
    pub(crate) brought: Brought,
    /// The root of the user's in which the workload runs; `None` for the guest's own.
    pub root: Option<Root>,
    /// The script of the user's that runs there.
    pub(crate) inside: Option<String>,
    /// The device of QEMU for the root's disk, where the root is an image.
    pub(crate) root_disk: Option<&'static str>,
    /// The tree with the guest's programs, in the cache.
    pub guest_tree: PathBuf,
    /// Who reads the kernel and the modules.
    pub parser: Parser,
}

impl Prepared {
    /// Fetches what is missing and checks the request. `report` gets a line before each longer step.
    pub fn new(
        packages: &Packages,
        parser: &Parser,
        request: Request<'_>,
        report: &mut dyn FnMut(&str),
    ) -> Result<Prepared> {
        // The request is checked as far as possible before anything large is fetched for it.
        if let Some(name) = request.workload
            && (!Path::new(name).exists() || syz::is_program(Path::new(name)))
        {
            Workload::find(name, Class::None).or_else(|error| match error {
                Error::BadValue(_) => Ok(Workload::for_class(Class::None)),
                other => Err(other),
            })?;
        }
        let catalog = Catalog::with(request.catalog)?;
        report(&format!("kernel {}", request.kernel));
        let kernel = kernels::find(packages, request.kernel)?;
        let modules = Modules::of(&kernel, parser)?;
        let plan = modules.plan(request.driver)?;
        report("QEMU");
        let qemu = Qemu::find(packages)?;
        let plans: Vec<LoadPlan> =
            request.more.iter().map(|driver| modules.plan(driver)).collect::<Result<_>>()?;
        let mut choice = catalog::choose(&catalog, &plan.driver.name, &plan.aliases, request.device, &qemu)?;
        let takes_device = choice.device.is_some();
        for turn in plans.iter().filter(|_| request.device.is_none()) {
            let wanted = catalog::choose(&catalog, &turn.driver.name, &turn.aliases, None, &qemu)?.device;
            share_device(&mut choice.device, wanted, &plan.driver.name, &turn.driver.name)?;
        }
        let workload = match request.workload {
            Some(name) => Workload::find(name, choice.class)?,
            None => match own_workload(&plan.driver.path) {
                Some(script) if choice.class == Class::None => Workload::from_script(&script)?,
                _ if choice.is_synthetic() => Workload::find(catalog::SYNTHETIC, choice.class)?,
                _ => Workload::for_class(choice.class),
            },
        };
        let mut also = Vec::new();
        for name in choice.also.iter().map(String::as_str).chain(workload.modules.iter().copied()) {
            match name.strip_suffix('?') {
                Some(name) if !modules.has(name) => {}
                Some(name) => modules.add(name, &plan.driver.name, &mut also)?,
                None => modules.add(name, &plan.driver.name, &mut also)?,
            }
        }
        let turns: Vec<&LoadPlan> = plans.iter().chain([&plan]).collect();
        let with: Vec<String> = request.with.iter().map(|name| normalized(name)).collect();
        let usual = also.len();
        add_watched(&modules, &with, &turns, &mut also)?;
        refuse_before(&turns, &also[usual..])?;
        let mut more = Vec::new();
        for plan in plans {
            let workload = match own_workload(&plan.driver.path) {
                Some(script) => Workload::from_script(&script)?,
                None => Workload::for_class(Class::None),
            };
            more.push(Companion { plan, workload });
        }
        report("guest programs");
        let guest_tree = guest_tree(packages)?;
        let software = match workload.software {
            [] => None,
            _ => Some(Software::find(packages)?),
        };
        let parameters = Parameters::new();
        let listed = catalog.entry(&plan.driver.name, &plan.aliases).cloned();
        let mut prepared = Prepared {
            qemu,
            unpacked: direct::unpacked(packages.cache(), parser, &kernel.vmlinuz),
            kernel,
            plan,
            also,
            with,
            listed,
            choice,
            takes_device,
            workload,
            software,
            more,
            parameters,
            brought: Brought::default(),
            root: None,
            inside: None,
            root_disk: None,
            guest_tree,
            parser: parser.clone(),
        };
        prepared.with = prepared.in_order();
        Ok(prepared)
    }

    /// All modules that the guest loads besides the drivers, in this order. One that several drivers need comes several times.
    pub fn loaded(&self) -> impl Iterator<Item = &ModuleFile> {
        let turns = self.more.iter().flat_map(|companion| &companion.plan.before);
        self.plan.before.iter().chain(&self.also).chain(turns)
    }

    /// The names of the watched modules besides the drivers, as these are loaded.
    fn in_order(&self) -> Vec<String> {
        let mut ordered: Vec<String> = Vec::new();
        for module in self.loaded().filter(|module| self.with.contains(&module.name)) {
            if !ordered.contains(&module.name) {
                ordered.push(module.name.clone());
            }
        }
        ordered
    }

    /// The module by which a guest that was saved reads its files.
    pub(crate) fn reader(&self) -> Result<ModuleFile> {
        Ok(Modules::of(&self.kernel, &self.parser)?.plan(READER)?.driver)
    }

    /// True where a root of the user's is an image.
    pub fn has_image(&self) -> bool {
        self.root_disk.is_some()
    }

    /// True where a script may send the machine to sleep.
    pub(crate) fn may_sleep(&self) -> bool {
        let inside = self.inside.as_deref().is_some_and(workload::may_sleep);
        inside || self.more.iter().map(|one| &one.workload).chain([&self.workload]).any(Workload::may_sleep)
    }

    /// Refuses a variable that no script of the run reads.
    pub fn refuse_unread<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<()> {
        let more = self.more.iter().map(|companion| &companion.workload);
        // The guest's init reads it, whatever the workload.
        let names = names.filter(|name| *name != ANSWERS || !self.choice.is_synthetic());
        settings::refuse_unread(std::iter::once(&self.workload).chain(more), names)
    }

    /// Sets parameters of the run's modules, in place of earlier ones. Unknown modules and names are refused.
    pub fn set_parameters(&mut self, given: &[Parameter]) -> Result<()> {
        let more = self.more.iter().map(|companion| &companion.plan);
        let plans: Vec<&LoadPlan> = std::iter::once(&self.plan).chain(more).collect();
        let drivers: Vec<&ModuleFile> = plans.iter().map(|plan| &plan.driver).collect();
        let others: Vec<&ModuleFile> = self.loaded().collect();
        self.parameters = settings::assign(given, &drivers, &others)?;
        Ok(())
    }

    /// Gives the guest files and a root of the user's. A program becomes the workload, with these variables in its
    /// environment.
    pub fn bring<'a>(&mut self, own: Own<'_>, variables: impl Iterator<Item = &'a str>) -> Result<()> {
        let Own { files, program, root, memory_mib } = own;
        if let Some(root) = root {
            return self.bring_root(own, root);
        }
        self.brought = Brought::load(files, program, memory_mib)?;
        if let Some(program) = program {
            self.workload = Workload::from_program(&program.path, &program.command(), variables);
        }
        Ok(())
    }

    /// Has the workload run in a root of the user's.
    fn bring_root(&mut self, own: Own<'_>, of: &GuestRoot) -> Result<()> {
        let Own { files, program, memory_mib, .. } = own;
        if program.is_none() && !self.workload.is_of_user() {
            return Err(Error::BadValue(format!(
                "--rootfs is for the program of --exec and for a script of yours, not for the workload '{}'; add --exec \
                 or --workload SCRIPT",
                self.workload.name
            )));
        }
        self.brought = Brought::load_for_root(files, memory_mib)?;
        let room = brought::room(memory_mib).saturating_sub(self.brought.bytes() as u64);
        let root = of.load(room)?;
        match program {
            Some(program) => {
                let path = program.path.display().to_string();
                if !files.iter().any(|file| file.is_at(&path)) {
                    root.refuse(of, &path)?;
                }
                self.workload = Workload::from_program_in_root(&path, &program.command_in_root());
            }
            None => {
                root.refuse(of, SHELL)?;
                let (workload, inside) = self.workload.clone().in_root();
                (self.workload, self.inside) = (workload, Some(inside));
            }
        }
        if let Some((_, file_system)) = root.image() {
            self.root_disk = Some(self.add_disk(file_system)?);
        }
        self.root = Some(root);
        Ok(())
    }

    /// Adds the modules for a disk with this file system. Returns the disk's device in QEMU, whose modules have nothing to
    /// do with the drivers.
    fn add_disk(&mut self, file_system: FileSystem) -> Result<&'static str> {
        let modules = Modules::of(&self.kernel, &self.parser)?;
        let plans: Vec<&LoadPlan> =
            std::iter::once(&self.plan).chain(self.more.iter().map(|one| &one.plan)).collect();
        let checked: Vec<&str> = plans.iter().map(|plan| plan.driver.name.as_str()).collect();
        for (device, names) in ROOT_DISKS {
            let mut also = self.also.clone();
            // What ext4 asks for by another name; kernels without the module have it built in.
            let checksums = Some("crc32c_generic").filter(|name| modules.has(name));
            for name in names.iter().copied().chain(checksums).chain([file_system.name(), "overlay"]) {
                modules.add(name, "--rootfs", &mut also)?;
            }
            if !also.iter().any(|module| checked.contains(&module.name.as_str())) {
                self.also = also;
                return Ok(device);
            }
        }
        Err(Error::BadValue(format!(
            "the guest would need {} to mount the image of --rootfs; give the root as a folder or an archive",
            checked.join(" or ")
        )))
    }

    /// The variable with the watched modules besides the drivers, as they are unloaded: what uses others was loaded after them.
    pub(crate) fn unloaded_last(&self) -> Option<(String, String)> {
        let with: Vec<&str> = self.with.iter().rev().map(String::as_str).collect();
        (!with.is_empty()).then(|| ("WITH".to_owned(), with.join(" ")))
    }

    /// True where the driver should bind a device: the run has one for it, or its aliases name devices of a bus.
    pub fn wants_device(&self) -> bool {
        self.takes_device || self.plan.binds_devices()
    }
}

/// Refuses modules of `--with` that need a driver of the run: they would be loaded before it.
fn refuse_before(turns: &[&LoadPlan], added: &[ModuleFile]) -> Result<()> {
    match turns.iter().find(|turn| added.iter().any(|module| module.name == turn.driver.name)) {
        None => Ok(()),
        Some(turn) => Err(Error::BadValue(format!(
            "a module of --with needs {driver}, and is loaded before it; check that module, with --with {driver}",
            driver = turn.driver.name
        ))),
    }
}

/// Adds watched modules that no driver of the run needs.
fn add_watched(
    modules: &Modules,
    names: &[String],
    turns: &[&LoadPlan],
    also: &mut Vec<ModuleFile>,
) -> Result<()> {
    for name in names {
        if name.contains('/') || name.ends_with(".ko") {
            return Err(Error::BadValue(format!("--with takes names of modules, and {name} is a file")));
        }
        if turns.iter().any(|turn| turn.driver.name == *name) {
            return Err(Error::BadValue(format!("{name} is the driver itself; --with names other modules")));
        }
        if !turns.iter().flat_map(|turn| &turn.before).any(|module| module.name == *name) {
            modules.add_watched(name, also)?;
        }
    }
    Ok(())
}

/// The tree with the guest's programs, fetched if the cache has none.
fn guest_tree(packages: &Packages) -> Result<PathBuf> {
    let names = ["busybox-static/trixie", "ethtool/bookworm", "libmnl0/bookworm", "libc6/bookworm"];
    packages.ensure_tree("guest", "the guest's programs (busybox, ethtool)", Fetch::Exactly(&names))
}

/// Drivers that run in turn in a guest share its device: the first that needs one decides which.
fn share_device(shared: &mut Option<Device>, wanted: Option<Device>, first: &str, turn: &str) -> Result<()> {
    match (shared.as_ref(), wanted) {
        (_, None) => {}
        (None, wanted) => *shared = wanted,
        (Some(device), Some(wanted)) if device.options == wanted.options => {}
        (Some(device), Some(wanted)) => {
            return Err(Error::BadValue(format!(
                "{first} and {turn} cannot take turns in one guest: it has one device, {}, and {turn} needs {}; \
                 check them one by one",
                device.name, wanted.name
            )));
        }
    }
    Ok(())
}

/// A script beside a module file that exercises it: `workload.sh`, or that name after the module's name. `None`
/// where the folder has neither.
pub fn own_workload(module: &Path) -> Option<PathBuf> {
    let folder = module.parent()?;
    let own = format!("{}.workload.sh", module.file_stem()?.to_str()?);
    [folder.join(own), folder.join("workload.sh")].into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str) -> Option<Device> {
        Some(Device { name: name.into(), options: vec![name.into()], arguments: Vec::new() })
    }

    #[test]
    fn turns_share_the_device_that_the_first_needs() {
        let mut shared = None;
        share_device(&mut shared, None, "a", "b").unwrap();
        share_device(&mut shared, device("edu"), "a", "c").unwrap();
        assert_eq!(shared, device("edu"));
        share_device(&mut shared, device("edu"), "a", "d").unwrap();
        let error = share_device(&mut shared, device("nvme"), "a", "e").unwrap_err();
        assert_eq!(
            error.to_string(),
            "a and e cannot take turns in one guest: it has one device, edu, and e needs nvme; check them one by one"
        );
        assert_eq!(shared, device("edu"));
    }
}
