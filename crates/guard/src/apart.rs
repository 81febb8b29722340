//! Guarding in a process without rights, for commands that start guests and so cannot confine themselves.

use crate::MAX_FILE;
use crate::workshop::Workshop;
use guardrail_binfmt::KernelImage;
use guardrail_binfmt::image::MAX_FILE as MAX_IMAGE;
use guardrail_host::drivers::digest;
use guardrail_host::error::sentence;
use guardrail_host::{HostError, Status, files};
use guardrail_vm::Error;
use guardrail_vm::kernels::Kernel;
use guardrail_vm::modules::{Facts, ModuleFile};
use guardrail_vm::parser::{Given, Job, Parser, Sizes, joined, pieces};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fs::File;
use std::path::Path;

/// What guarding takes, without a kernel's types: the process that parses reads these.
pub struct FarWorkshop {
    parser: Parser,
    kernel: Kernel,
    /// The path of the runtime.
    name: String,
    /// The bytes of `guardrail.ko`.
    pub runtime: Vec<u8>,
    domain: u8,
}

impl FarWorkshop {
    /// Takes the runtime's file, which is not parsed here.
    pub fn new(
        parser: &Parser,
        kernel: &Kernel,
        runtime: &Path,
        domain: u8,
    ) -> Result<FarWorkshop, HostError> {
        let (parser, kernel, name) = (parser.clone(), kernel.clone(), runtime.display().to_string());
        Ok(FarWorkshop { parser, kernel, name, runtime: files::input(runtime, MAX_FILE)?, domain })
    }

    /// Guards a driver, and returns the file; `before` holds the modules that it needs.
    pub fn harden(&self, driver: &ModuleFile, before: &[ModuleFile]) -> Result<Vec<u8>, HostError> {
        let image = File::open(&self.kernel.vmlinuz);
        let image = image.map_err(HostError::io("open", self.kernel.vmlinuz.display()))?;
        let modules =
            [driver].into_iter().chain(before).map(|module| (&module.name, module.bytes.as_slice()));
        let (files, bytes) = joined([(&self.name, self.runtime.as_slice())].into_iter().chain(modules));
        let job = Harden {
            release: self.kernel.release.clone(),
            kernel: self.kernel.vmlinuz.display().to_string(),
            domain: self.domain,
            files,
        };
        let (done, file) = (self.parser.ask(&job, &[&image], &bytes))
            .map_err(|error| error.of(&driver.path, Error::BadValue))?;
        match done {
            Done::Guarded => Ok(file),
            Done::Refused(why) => Err(HostError::Usage(why)),
            Done::Failed(why) => Err(HostError::Run(why)),
        }
    }
}

/// Guards a driver. The file is the kernel's image; the bytes are those of the runtime, the driver, and what it needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Harden {
    release: String,
    kernel: String,
    domain: u8,
    /// The runtime, the driver, and the modules that it needs.
    files: Sizes,
}

/// How that ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Done {
    /// The bytes of the answer are the guarded driver.
    Guarded,
    /// The driver is not guarded, for this reason.
    Refused(String),
    /// Guarding failed.
    Failed(String),
}

thread_local! {
    /// The workshop of the last driver, since reading a kernel takes longer than guarding one driver.
    static LAST: RefCell<Option<(String, Workshop<'static>)>> = const { RefCell::new(None) };
}

impl Job for Harden {
    const NAME: &'static str = "harden";
    type Answer = Done;

    fn run(self, given: Given) -> Result<(Done, Vec<u8>), String> {
        Ok(match self.harden(given) {
            Ok(file) => (Done::Guarded, file),
            Err(error) if error.status() == Status::Usage => (Done::Refused(sentence(&error)), Vec::new()),
            Err(error) => (Done::Failed(sentence(&error)), Vec::new()),
        })
    }
}

impl Harden {
    fn harden(self, mut given: Given) -> Result<Vec<u8>, HostError> {
        let cut = || HostError::Run("the request is shorter than it says".to_owned());
        let bytes = std::mem::take(&mut given.bytes);
        let files: Vec<_> = pieces(&self.files, &bytes).collect();
        let [(what, runtime), modules @ ..] = files.as_slice() else { return Err(cut()) };
        if files.len() != self.files.len() {
            return Err(cut());
        }
        let module = |(name, bytes): &(&str, &[u8])| ModuleFile {
            name: (*name).to_owned(),
            path: (*name).into(),
            bytes: bytes.to_vec(),
            facts: Facts::default(),
        };
        let modules: Vec<_> = modules.iter().map(module).collect();
        let (driver, before) = modules.split_first().ok_or_else(cut)?;
        let key = format!("{} {} {}", self.kernel, self.domain, digest(runtime));
        LAST.with_borrow_mut(|last| {
            let workshop = match last.take().filter(|(known, _)| *known == key) {
                Some((_, workshop)) => workshop,
                None => {
                    let image = || {
                        let image = given.read(MAX_IMAGE).map_err(HostError::Run)?;
                        Ok(KernelImage::parse(&self.kernel, image)?)
                    };
                    Workshop::of(&self.release, (what, runtime.to_vec()), image, self.domain)?
                }
            };
            let (_, workshop) = last.insert((key, workshop));
            Ok(workshop.harden(driver, before)?.file)
        })
    }
}
