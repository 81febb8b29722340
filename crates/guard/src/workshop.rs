//! The runtime and the types of one kernel, with which its drivers are guarded.

use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_host::HostError;
use guardrail_kernel::isolation::Isolation;
use guardrail_rewrite::checks::{Checks, Stores};
use guardrail_rewrite::inspect::Exports;
use guardrail_rewrite::interpose::{Border, border};
use guardrail_rewrite::life::Hooks;
use guardrail_rewrite::wrap::Done;
use guardrail_rewrite::{Counts, Object, RewriteError, rewrite};
use guardrail_vm::installed::Target;
use guardrail_vm::modules::ModuleFile;
use guardrail_vm::packages::Packages;
use guardrail_vm::runtime;
use std::fs;
use std::path::Path;

/// What drivers are guarded with.
pub struct Workshop {
    /// The kernel's release.
    pub release: String,
    /// `guardrail.ko`.
    pub runtime: Vec<u8>,
    /// What it exports.
    pub exports: Exports,
    /// The protection domain.
    pub domain: u8,
    trusted: Vec<String>,
    hooks: Hooks,
    kernel: KernelImage,
}

/// A guarded driver.
pub struct Hardened {
    /// Its name.
    pub name: String,
    /// The stock module.
    pub stock: Vec<u8>,
    /// The guarded one.
    pub file: Vec<u8>,
    /// What was done to its code.
    pub counts: Counts,
    /// What was done to its stores.
    pub stores: Stores,
    /// What its border is.
    pub border: Border,
    /// What was done at its border.
    pub done: Done,
    /// Functions that were left as they are.
    pub trusted: Vec<String>,
    /// Functions with a calling convention of their own.
    pub own: Vec<String>,
}

impl Workshop {
    /// Builds the runtime, or reads the one that is given, and the kernel's types.
    pub fn open(
        packages: &Packages,
        target: &Target,
        given: Option<&Path>,
        domain: u8,
    ) -> Result<Workshop, HostError> {
        let built = match given {
            Some(file) => file.to_path_buf(),
            None => runtime::ensure_for(packages, target)?.module,
        };
        let what = built.display().to_string();
        let runtime = fs::read(&built).map_err(|source| match given {
            Some(_) => HostError::Usage(format!("--runtime {what}: {source}")),
            None => HostError::io("read", &what)(source),
        })?;
        let exports = Exports::read(&what, runtime.clone())?;
        exports.fits(&what, &target.kernel.release)?;
        let hooks = Hooks::of(&what, runtime.clone())?;
        let kernel = KernelImage::open(&target.kernel.vmlinuz)?;
        let release = target.kernel.release.clone();
        Ok(Workshop { release, runtime, exports, domain, trusted: Vec::new(), hooks, kernel })
    }

    /// Leaves functions of these names as they are.
    pub fn trusting(self, names: &[String]) -> Workshop {
        Workshop { trusted: names.to_vec(), ..self }
    }

    /// Guards a driver; `before` are the modules that it needs.
    pub fn harden(&self, driver: &ModuleFile, before: &[ModuleFile]) -> Result<Hardened, HostError> {
        let name = driver.name.as_str();
        let border = self.border(driver, before)?;
        let mut checks = Checks::new(self.domain)
            .guarded(name, &self.exports.symvers())
            .completing(self.hooks)
            .trusting(self.trusted.iter().cloned())
            .interposing(border.interposition.clone());
        let rewritten = rewrite(name, driver.bytes.clone(), &mut [&mut checks])
            .map_err(|error| of_driver(name, error))?;
        Ok(Hardened {
            name: name.to_owned(),
            stock: driver.bytes.clone(),
            file: rewritten.file,
            counts: rewritten.counts,
            stores: checks.stores,
            border,
            done: checks.done,
            trusted: checks.left.into_iter().collect(),
            own: rewritten.own,
        })
    }

    /// What is done at a driver's border.
    fn border(&self, driver: &ModuleFile, before: &[ModuleFile]) -> Result<Border, HostError> {
        let image = |module: &ModuleFile| ModuleImage::parse(&module.name, module.bytes.clone());
        let needed = before.iter().map(image).collect::<Result<Vec<_>, _>>()?;
        let isolation = Isolation::for_driver(&self.kernel, &image(driver)?, &needed)
            .map_err(|error| HostError::Run(error.to_string()))?;
        Ok(border(&isolation, &Object::read(&driver.name, &driver.bytes)?))
    }
}

/// An error of a driver among several, with what can be done about it.
fn of_driver(name: &str, error: RewriteError) -> HostError {
    match &error {
        RewriteError::Unproven { .. } => HostError::Usage(format!(
            "{name}: {error}; --trust NAME leaves such a function as it is, unchecked"
        )),
        RewriteError::Refused { .. } => HostError::Usage(format!("{name}: {error}")),
        _ => error.into(),
    }
}
