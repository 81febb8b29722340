//! Module files of a kernel: how to find them by name, their dependencies, and their load order.
//!
//! Debian's packages have no `modules.dep` (installing makes it), so dependencies come from the modules
//! themselves: their `.modinfo` section names them.

use crate::error::{Context, Error, Result, suggest};
use crate::kernel::kernels::Kernel;
pub use crate::kernel::listed::normalized;
use crate::kernel::listed::{self, ENDINGS, module_name};
use crate::parser::{Given, Job, Parser};
use guardrail_binfmt::module::is_name;
use object::{Object, ObjectSection};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest module file that is read; no module of a distribution approaches it.
const MAX_MODULE: u64 = 256 << 20;

/// The modules of a kernel by name.
#[derive(Clone, Debug)]
pub struct Modules {
    release: String,
    /// The folder that holds them.
    folder: PathBuf,
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
    parser: Parser,
}

/// One module file, decompressed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ModuleFile {
    /// Its name as `struct module` spells it (with `_`).
    pub name: String,
    /// The path of the file that it was read from.
    pub path: PathBuf,
    /// The ELF file's contents.
    pub bytes: Vec<u8>,
    /// What was found in the file that it was read from.
    pub facts: Facts,
}

impl std::fmt::Debug for ModuleFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ModuleFile({}, {} bytes)", self.name, self.bytes.len())
    }
}

/// A driver with everything that must be loaded before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadPlan {
    /// Its dependencies in load order.
    pub before: Vec<ModuleFile>,
    /// The driver itself.
    pub driver: ModuleFile,
    /// The device aliases of the driver, such as `pci:v00008086d0000100E…`.
    pub aliases: Vec<String>,
}

/// How the aliases of devices begin that drivers bind, by bus.
const BUSES: [&str; 18] = [
    "pci:",
    "usb:",
    "virtio:",
    "platform:",
    "acpi",
    "of:",
    "i2c:",
    "spi:",
    "hid:",
    "serio:",
    "pnp:",
    "hdaudio:",
    "sdio:",
    "scsi:",
    "wmi:",
    "auxiliary:",
    "pcmcia:",
    "vmbus:",
];

impl LoadPlan {
    /// True where the driver serves devices of a bus: without one, it has not done its work.
    pub fn binds_devices(&self) -> bool {
        self.aliases.iter().any(|alias| BUSES.iter().any(|bus| alias.starts_with(bus)))
    }
}

/// What a module's file says. It is not trusted, so names are checked before they name anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The fields of its `.modinfo`.
    pub info: ModInfo,
    /// The GNU build ID in hexadecimal; `None` where it has none.
    pub build_id: Option<String>,
    /// True where it holds debug information.
    pub has_lines: bool,
}

/// The fields of `.modinfo` that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModInfo {
    /// The module's name, where the kernel's build wrote one.
    pub name: Option<String>,
    /// Names of modules that must be loaded first.
    pub depends: Vec<String>,
    /// Names of modules, or of algorithms, that it asks for when it is loaded.
    pub asks_for: Vec<String>,
    /// Release and build options that the module was built for.
    pub vermagic: String,
    /// The aliases of the devices that it serves.
    pub aliases: Vec<String>,
    /// The names of the firmware files that it may ask for.
    pub firmware: Vec<String>,
    /// The names of its parameters.
    pub parameters: BTreeSet<String>,
    /// True where it was guarded.
    pub guarded: bool,
    /// The version that its author gave it.
    pub version: Option<String>,
    /// The digest of its sources.
    pub srcversion: Option<String>,
}

impl Modules {
    /// Lists the modules of `kernel`, which `parser` reads.
    pub fn of(kernel: &Kernel, parser: &Parser) -> Result<Modules> {
        let files = listed::files(&kernel.modules.join("kernel"))?;
        let list = fs::read_to_string(kernel.modules.join("modules.builtin")).unwrap_or_default();
        let built_in = list.lines().filter_map(|line| module_name(Path::new(line))).collect();
        // Where the kernel was built, this leads to the tree.
        let folder = kernel.modules.join("kernel");
        let (release, folder) = (kernel.release.clone(), folder.canonicalize().context("find", &folder)?);
        Ok(Modules { release, folder, files, built_in, parser: parser.clone() })
    }

    /// The names of all modules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The names of all modules, with their files.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.files.iter().map(|(name, path)| (name.as_str(), path.as_path()))
    }

    /// True where `name` is a loadable module or part of the image.
    pub fn has(&self, name: &str) -> bool {
        let name = normalized(name);
        self.files.contains_key(&name) || self.built_in.contains(&name)
    }

    /// Plans the load of `driver`: a name, or a path to a `.ko` file, compressed or not.
    pub fn plan(&self, driver: &str) -> Result<LoadPlan> {
        if driver.contains('/') || ENDINGS.iter().any(|ending| driver.ends_with(ending)) {
            return self.plan_file(Path::new(driver));
        }
        let name = normalized(driver);
        let Some(path) = self.files.get(&name) else {
            if self.built_in.contains(&name) {
                return Err(Error::BuiltIn { name, release: self.release.clone() });
            }
            if self.files.is_empty() {
                return Err(Error::NoModules { release: self.release.clone(), folder: self.folder.clone() });
            }
            let near = suggest(&name, self.names());
            return Err(Error::Unknown { what: "driver", name: driver.to_owned(), near });
        };
        self.plan_for(read_module(&self.parser, path, name)?)
    }

    fn plan_file(&self, path: &Path) -> Result<LoadPlan> {
        if !path.is_file() {
            return Err(Error::BadModule { path: path.to_path_buf(), why: "there is no such file".into() });
        }
        let name = module_name(path).ok_or_else(|| Error::BadModule {
            path: path.to_path_buf(),
            why: "a driver is the name of a module, or a file whose name ends in .ko, .ko.xz or .ko.zst"
                .into(),
        })?;
        let driver = read_module(&self.parser, path, name)?;
        let built_for = driver.facts.info.vermagic.split_whitespace().next().unwrap_or("no kernel at all");
        if built_for != self.release {
            let why = format!("it was built for kernel {built_for}, and the kernel is {}", self.release);
            return Err(Error::BadModule { path: path.to_path_buf(), why });
        }
        self.plan_for(driver)
    }

    fn plan_for(&self, mut driver: ModuleFile) -> Result<LoadPlan> {
        let info = driver.facts.info.clone();
        if let Some(name) = &info.name {
            driver.name = normalized(name);
        }
        refuse_name(&driver.path, &driver.name)?;
        let mut before = Vec::new();
        let beside = driver.path.parent().map(Path::to_path_buf);
        self.add_dependencies(&driver.name, &self.asked_for(&info), None, &mut before, 0)?;
        self.add_dependencies(&driver.name, &info.depends, beside.as_deref(), &mut before, 0)?;
        Ok(LoadPlan { before, driver, aliases: info.aliases })
    }

    /// Adds the module `name`, which `driver` needs to be of use, and its dependencies to `list`. Modules
    /// that are listed already or built in are not added.
    pub fn add(&self, name: &str, driver: &str, list: &mut Vec<ModuleFile>) -> Result<()> {
        self.add_dependencies(driver, &[name.to_owned()], None, list, 0)
    }

    /// Adds a module of the kernel's that is watched, and its dependencies, to `list`.
    pub fn add_watched(&self, name: &str, list: &mut Vec<ModuleFile>) -> Result<()> {
        // What is part of the image has no module to watch, and `plan` says so. It also knows which names there are.
        let LoadPlan { before, driver, .. } = self.plan(name).map_err(|error| match error {
            Error::Unknown { name, near, .. } => Error::Unknown { what: "module", name, near },
            other => other,
        })?;
        for module in before.into_iter().chain([driver]) {
            if list.iter().all(|other| other.name != module.name) {
                list.push(module);
            }
        }
        Ok(())
    }

    /// The modules that a module asks for by name. An algorithm stands for its generic module.
    fn asked_for(&self, info: &ModInfo) -> Vec<String> {
        let names = info.asks_for.iter().map(|name| normalized(name));
        let names = names.map(|name| match self.files.contains_key(&name) {
            true => name,
            false => format!("{name}_generic"),
        });
        names.filter(|name| self.files.contains_key(name)).collect()
    }

    /// Modules that the kernel does not have may be beside the driver, as they are where both were built from
    /// sources.
    fn add_dependencies(
        &self,
        of: &str,
        names: &[String],
        beside: Option<&Path>,
        list: &mut Vec<ModuleFile>,
        depth: usize,
    ) -> Result<()> {
        for name in names {
            let name = normalized(name);
            if self.built_in.contains(&name) || list.iter().any(|module| module.name == name) {
                continue;
            }
            // A cycle cannot load; the bound on depth limits what a hand-made file can cause.
            let beside_it = beside.filter(|_| !name.contains('/'));
            let own = beside_it.map(|folder| folder.join(format!("{name}.ko"))).filter(|path| path.is_file());
            let path = self.files.get(&name).or(own.as_ref()).filter(|_| depth < 32);
            let path = path.ok_or_else(|| Error::MissingDependency {
                module: of.to_owned(),
                missing: name.clone(),
                release: self.release.clone(),
            })?;
            refuse_name(path, &name)?;
            let module = read_module(&self.parser, path, name)?;
            let info = &module.facts.info;
            self.add_dependencies(&module.name, &self.asked_for(info), None, list, depth + 1)?;
            self.add_dependencies(&module.name, &info.depends, beside, list, depth + 1)?;
            if !list.iter().any(|other| other.name == module.name) {
                list.push(module);
            }
        }
        Ok(())
    }
}

/// Refuses a name that no module can have. Files of the host and words of the guest's scripts are named by it.
fn refuse_name(path: &Path, name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let name = name.escape_debug();
    let why = format!("'{name}' is no name of a module, which has letters, digits, '_', '-' and '.'");
    Err(Error::BadModule { path: path.to_path_buf(), why })
}

/// Reads a module file, decompressing it if its name says that it is compressed.
fn read_module(parser: &Parser, path: &Path, name: String) -> Result<ModuleFile> {
    let bad = |why| Error::BadModule { path: path.to_path_buf(), why };
    let file = fs::File::open(path).context("open", path)?;
    let job = ReadModule { packed: Packed::by_name(path) };
    let (facts, bytes) = parser.ask(&job, &[&file], &[]).map_err(|error| error.of(path, bad))?;
    Ok(ModuleFile { name, path: path.to_path_buf(), bytes, facts })
}

/// How a module's file is compressed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Packed {
    Not,
    Xz,
    Zst,
}

impl Packed {
    fn by_name(path: &Path) -> Packed {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("xz") => Packed::Xz,
            Some("zst") => Packed::Zst,
            _ => Packed::Not,
        }
    }
}

/// Decompresses the file of a module, and reads what it says.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReadModule {
    packed: Packed,
}

impl Job for ReadModule {
    const NAME: &'static str = "module";
    type Answer = Facts;

    fn run(self, mut given: Given) -> Result<(Facts, Vec<u8>), String> {
        let bytes = unpacked(self.packed, given.file()?)?;
        Ok((facts(&bytes)?, bytes))
    }
}

fn unpacked(packed: Packed, file: fs::File) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    match packed {
        Packed::Xz => {
            let reader = liblzma::read::XzDecoder::new(file).take(MAX_MODULE + 1).read_to_end(&mut bytes);
            reader.map_err(|_| "it is not a whole .xz file")?;
        }
        Packed::Zst => {
            let reader = zstd::stream::read::Decoder::new(file).map_err(|_| "it is not a .zst file")?;
            let read = reader.single_frame().take(MAX_MODULE + 1).read_to_end(&mut bytes);
            read.map_err(|_| "it is not a whole .zst file")?;
        }
        Packed::Not => {
            let read = file.take(MAX_MODULE + 1).read_to_end(&mut bytes);
            read.map_err(|error| format!("it cannot be read: {error}"))?;
        }
    }
    match bytes.len() as u64 > MAX_MODULE {
        true => Err("it is larger than any module can be".to_owned()),
        false => Ok(bytes),
    }
}

/// Reads what a module says, and makes sure that it is a whole ELF file for x86-64.
fn facts(bytes: &[u8]) -> Result<Facts, String> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err("it is not an ELF file, so not a kernel module".to_owned());
    }
    // The machine has the same offset in every ELF file.
    if bytes.get(4) != Some(&2) || bytes.get(18..20) != Some(&62u16.to_le_bytes()) {
        return Err("it was built for another architecture than x86-64".to_owned());
    }
    let damaged = "it is truncated or damaged";
    let file = object::File::parse(bytes).map_err(|_| damaged)?;
    for section in file.sections() {
        section.data().map_err(|_| damaged)?;
    }
    let section =
        file.section_by_name(".modinfo").ok_or("it is not a kernel module (no .modinfo section)")?;
    let info = parse_mod_info(section.data().map_err(|_| damaged)?);
    Ok(Facts { info, build_id: build_id(&file), has_lines: has_lines(&file) })
}

/// Whether a file holds debug information.
pub(super) fn has_lines(file: &object::File<'_>) -> bool {
    file.section_by_name(".debug_info").is_some_and(|section| section.size() > 0)
}

/// The GNU build ID of a file, in hexadecimal.
pub(super) fn build_id(file: &object::File<'_>) -> Option<String> {
    let id = file.build_id().ok()??;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The bytes with which the field of a guarded module begins. Only files with them are read once more.
fn may_be_guarded(file: &[u8]) -> bool {
    let field = format!("{}=", guardrail_abi::FIELD);
    file.windows(field.len()).any(|bytes| bytes == field.as_bytes())
}

/// The name of a guarded module; `None` where the file is no such module.
pub fn guarded_name(parser: &Parser, file: &[u8]) -> Result<Option<String>> {
    if !may_be_guarded(file) {
        return Ok(None);
    }
    let what = Path::new("a guarded module");
    let bad = |why| Error::BadModule { path: what.to_path_buf(), why };
    let (name, _) = parser.ask(&GuardedName {}, &[], file).map_err(|error| error.of(what, bad))?;
    name.as_ref().map_or(Ok(()), |name| refuse_name(what, name))?;
    Ok(name)
}

/// Reads the name of a guarded module.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuardedName {}

impl Job for GuardedName {
    const NAME: &'static str = "guarded";
    type Answer = Option<String>;

    fn run(self, given: Given) -> Result<(Option<String>, Vec<u8>), String> {
        let name =
            facts(&given.bytes).ok().filter(|facts| facts.info.guarded).and_then(|facts| facts.info.name);
        Ok((name.map(|name| normalized(&name)), Vec::new()))
    }
}

fn parse_mod_info(data: &[u8]) -> ModInfo {
    let mut info = ModInfo::default();
    for field in data.split(|byte| *byte == 0) {
        let text = String::from_utf8_lossy(field);
        let Some((key, value)) = text.split_once('=') else { continue };
        match key {
            "name" => info.name = Some(value.to_owned()),
            "vermagic" => info.vermagic = value.to_owned(),
            "depends" => {
                info.depends.extend(value.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
            }
            "softdep" => {
                let before = value.split("pre:").nth(1).unwrap_or_default().split("post:").next();
                info.asks_for.extend(before.unwrap_or_default().split_whitespace().map(str::to_owned));
            }
            "parm" | "parmtype" => {
                info.parameters.extend(value.split_once(':').map(|(name, _)| name.to_owned()));
            }
            "alias" => info.aliases.push(value.to_owned()),
            "firmware" => info.firmware.push(value.to_owned()),
            "version" => info.version = Some(value.to_owned()),
            "srcversion" => info.srcversion = Some(value.to_owned()),
            guardrail_abi::FIELD => info.guarded = true,
            _ => {}
        }
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["..", "../../x", "a/b", "", "-r", "a b", "a\u{1b}[2J", "$(reboot)", &"x".repeat(56)] {
            let refused = refuse_name(Path::new("x.ko"), name).unwrap_err().to_string();
            assert!(refused.starts_with("x.ko: '") && !refused.contains('\u{1b}'), "{refused}");
        }
        for name in ["e1000", "8021q", "snd_hda_intel", "x.guarded", &"x".repeat(55)] {
            assert!(refuse_name(Path::new("x.ko"), name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_kernel_without_modules_says_how_it_gets_some() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Kernel {
            release: "6.1-own".into(),
            vmlinuz: folder.path().join("vmlinuz"),
            modules: folder.path().to_path_buf(),
        };
        let said = || {
            let modules = Modules::of(&kernel, &Parser::here());
            modules.and_then(|modules| modules.plan("e1000")).unwrap_err()
        };
        assert!(said().to_string().starts_with("cannot list "), "{}", said());
        fs::create_dir(folder.path().join("kernel")).unwrap();
        let error = said();
        let wanted = format!(
            "kernel 6.1-own has no modules in {}/kernel; build it with CONFIG_MODULES=y",
            folder.path().canonicalize().unwrap().display()
        );
        assert!(error.is_usage() && error.to_string().starts_with(&wanted), "{error}");
        fs::write(folder.path().join("modules.builtin"), "kernel/drivers/e1000.ko\n").unwrap();
        assert!(matches!(said(), Error::BuiltIn { .. }));
        fs::remove_file(folder.path().join("modules.builtin")).unwrap();
        fs::write(folder.path().join("kernel/e100.ko"), "").unwrap();
        assert!(said().to_string().ends_with("the nearest is 'e100'"), "{}", said());
    }

    #[test]
    fn modinfo_fields_are_read() {
        let info = parse_mod_info(
            b"license=GPL\0alias=pci:v00008086d*\0depends=mii,scsi_mod\0\0guardrail=checks\0vermagic=6.1 SMP\0name=x\0softdep=pre: crc32c aes post: y\0parm=debug:Level: 0 to 3\0parmtype=debug:int\0parmtype=hidden:uint",
        );
        assert_eq!(info.asks_for, ["crc32c", "aes"]);
        assert_eq!(info.parameters.iter().collect::<Vec<_>>(), ["debug", "hidden"]);
        assert_eq!(info.depends, ["mii", "scsi_mod"]);
        assert_eq!(info.vermagic, "6.1 SMP");
        assert_eq!(info.aliases, ["pci:v00008086d*"]);
        assert_eq!(info.name.as_deref(), Some("x"));
        assert!(info.guarded && !parse_mod_info(b"name=x\0guardrail_grade=1").guarded);
    }

    #[test]
    fn files_that_are_no_modules_are_refused_with_the_reason() {
        let reason = |bytes: &[u8]| facts(bytes).unwrap_err();
        assert_eq!(reason(b"hello"), "it is not an ELF file, so not a kernel module");
        let mut header = [0u8; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[18] = 183;
        assert_eq!(reason(&header), "it was built for another architecture than x86-64");
        header[18] = 62;
        assert_eq!(reason(&header[..40]), "it is truncated or damaged");
    }

    #[test]
    fn compressed_files_are_read_as_a_whole_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            unpacked(Packed::by_name(&path), fs::File::open(&path).unwrap())
        };
        let packed = zstd::encode_all(&b"a module"[..], 1).unwrap();
        assert_eq!(read("x.ko.zst", &packed).unwrap(), b"a module");
        assert_eq!(read("x.ko", b"a module").unwrap(), b"a module");
        assert!(
            read("x.ko.zst", &packed[..packed.len() - 2]).unwrap_err().ends_with("not a whole .zst file")
        );
        assert!(read("x.ko.xz", b"no").unwrap_err().ends_with("not a whole .xz file"));
    }

    #[test]
    fn names_are_normalized_and_near_ones_suggested() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Kernel {
            release: "1.0".into(),
            vmlinuz: folder.path().join("vmlinuz"),
            modules: folder.path().to_path_buf(),
        };
        fs::create_dir_all(folder.path().join("kernel/net")).unwrap();
        for name in ["e1000.ko", "nvme-core.ko.xz"] {
            fs::write(folder.path().join("kernel/net").join(name), "").unwrap();
        }
        fs::write(folder.path().join("modules.builtin"), "kernel/lib/crc32.ko\n").unwrap();
        let modules = Modules::of(&kernel, &Parser::here()).unwrap();
        assert!(modules.has("nvme-core") && modules.has("crc32") && !modules.has("nvme"));
        assert!(matches!(modules.plan("crc32"), Err(Error::BuiltIn { .. })));
        let message = modules.plan("e1001").unwrap_err().to_string();
        assert_eq!(message, "there is no driver named 'e1001'; the nearest is 'e1000'");
    }
}
