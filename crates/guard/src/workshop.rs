//! The runtime and the types of one kernel, which guarding its drivers needs.

use crate::inspect::prove;
use crate::selection::{Offer, Selection};
use crate::{MAX_FILE, learn};
use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_host::{HostError, files};
use guardrail_kernel::isolation::Isolation;
use guardrail_knowledge::table::Row;
use guardrail_rewrite::border::Done;
use guardrail_rewrite::border::annotations::{Border, border, transact};
use guardrail_rewrite::border::grade::Grade;
use guardrail_rewrite::border::runtime::Exports;
use guardrail_rewrite::passes::checks::{Checks, Stores};
use guardrail_rewrite::{Counts, Object, RewriteError, rewrite};
use guardrail_vm::installed::Target;
use guardrail_vm::modules::ModuleFile;
use std::path::Path;

/// Everything that guarding a driver needs.
pub struct Workshop<'a> {
    /// The kernel's release.
    pub release: String,
    /// The bytes of `guardrail.ko`.
    pub runtime: Vec<u8>,
    /// The symbols that the runtime exports.
    pub exports: Exports,
    /// The protection domain of the drivers.
    pub domain: u8,
    trusted: Vec<String>,
    threshold: u32,
    /// The entries that are transactions from the start; `None` where none can be.
    transact: Option<Selection>,
    kernel: KernelImage,
    /// Derived rows for functions without a written one.
    rows: Vec<Row<'a>>,
}

/// A guarded driver with what was done to it.
pub struct Hardened {
    /// The module's name.
    pub name: String,
    /// The stock module's bytes.
    pub stock: Vec<u8>,
    /// The guarded module's bytes.
    pub file: Vec<u8>,
    /// Counts of the changes to its code.
    pub counts: Counts,
    /// Counts of the changes to its stores.
    pub stores: Stores,
    /// The functions that its border needs wrappers for.
    pub border: Border,
    /// Counts of the changes at its border.
    pub done: Done,
    /// How much of it is under a rule.
    pub grade: Grade,
    /// Percent of its imports that the runtime wants under a rule for policies that end calls.
    pub threshold: u32,
    /// Functions that remain unchecked on request.
    pub trusted: Vec<String>,
    /// Functions with a calling convention of their own.
    pub own: Vec<String>,
    /// Entries that can be transactions; `None` where none can be.
    pub(crate) offer: Option<Offer>,
}

impl<'a> Workshop<'a> {
    /// Reads the file of the runtime, and the kernel's types.
    pub fn open(target: &Target, runtime: &Path, domain: u8) -> Result<Workshop<'a>, HostError> {
        let what = runtime.display().to_string();
        let runtime = files::input(runtime, MAX_FILE)?;
        let kernel = || Ok(KernelImage::open(&target.kernel.vmlinuz)?);
        Workshop::of(&target.kernel.release, (&what, runtime), kernel, domain)
    }

    /// The same with the bytes of the runtime, which has a name in errors. The kernel is read after it.
    pub(crate) fn of(
        release: &str,
        (what, runtime): (&str, Vec<u8>),
        kernel: impl FnOnce() -> Result<KernelImage, HostError>,
        domain: u8,
    ) -> Result<Workshop<'a>, HostError> {
        let exports = Exports::read(what, runtime.clone())?;
        exports.fits(what, release)?;
        let (kernel, release) = (kernel()?, release.to_owned());
        let (trusted, threshold, transact, rows) = (Vec::new(), 0, None, Vec::new());
        Ok(Workshop { release, runtime, exports, domain, trusted, threshold, transact, kernel, rows })
    }

    /// Leaves functions with these names unchecked, and takes imports with these names as if they had a rule.
    pub fn trusting(self, names: &[String]) -> Workshop<'a> {
        Workshop { trusted: names.to_vec(), ..self }
    }

    /// Has the runtime refuse drivers under policies that end calls, unless so many percent of their imports
    /// are under a rule.
    pub fn wanting(self, threshold: u32) -> Workshop<'a> {
        Workshop { threshold, ..self }
    }

    /// Prepares the entries of drivers for transactions. Those that are selected are transactions from the start.
    pub(crate) fn transacting(self, selection: Option<Selection>) -> Workshop<'a> {
        Workshop { transact: selection, ..self }
    }

    /// Takes derived rows from the text of a file, which `file` names in errors.
    pub fn with_rows(self, file: &str, text: &'a str) -> Result<Workshop<'a>, HostError> {
        let rows = guardrail_learn::read(file, text, &self.kernel).map_err(learn::error)?;
        Ok(Workshop { rows, ..self })
    }

    /// Guards a driver; `before` holds the modules that it needs.
    pub fn harden(&self, driver: &ModuleFile, before: &[ModuleFile]) -> Result<Hardened, HostError> {
        let name = driver.name.as_str();
        let (border, offer) = self.border(driver, before)?;
        let mut checks = Checks::new(self.domain)
            .guarded(name, &self.exports)
            .trusting(self.trusted.iter().cloned())
            .wanting(self.threshold)
            .interposing(border.interposition.clone());
        let rewritten = rewrite(name, driver.bytes.clone(), &mut [&mut checks])
            .map_err(|error| of_driver(name, error))?;
        certified(name, &rewritten.file)?;
        Ok(Hardened {
            name: name.to_owned(),
            stock: driver.bytes.clone(),
            file: rewritten.file,
            counts: rewritten.counts,
            stores: checks.stores,
            border,
            done: checks.done,
            grade: checks.grade,
            threshold: self.threshold,
            trusted: checks.left.into_iter().collect(),
            own: rewritten.own,
            offer,
        })
    }

    /// The border of a driver, and which of its entries can be transactions.
    fn border(
        &self,
        driver: &ModuleFile,
        before: &[ModuleFile],
    ) -> Result<(Border, Option<Offer>), HostError> {
        let image = |module: &ModuleFile| ModuleImage::parse(&module.name, module.bytes.clone());
        let needed = before.iter().map(image).collect::<Result<Vec<_>, _>>()?;
        let own = image(driver)?;
        let isolation = Isolation::for_driver(&self.kernel, &own, &needed, self.rows.clone())
            .map_err(|error| HostError::Run(error.to_string()))?;
        let object = Object::read(&driver.name, &driver.bytes)?;
        let mut border = border(&isolation, &object);
        let Some(selection) = &self.transact else { return Ok((border, None)) };
        let mut offer = Offer::of(&driver.name, &own, &object)?;
        let selected = offer.selected(selection);
        transact(&mut border, &isolation, &object, &|name| selected.contains(name));
        offer.note_obstacles(&border);
        Ok((border, Some(offer)))
    }
}

/// Refuses to give out a module that is not proven.
fn certified(name: &str, file: &[u8]) -> Result<(), HostError> {
    let faults = prove(name, file)?.faults;
    let Some(first) = faults.first() else { return Ok(()) };
    let more = match faults.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Err(HostError::Usage(format!(
        "{name}: the guarded module cannot be proven: {first}{more}; --trust NAME leaves a function as it is, \
         unchecked"
    )))
}

/// An error of one driver among several, with a remedy.
fn of_driver(name: &str, error: RewriteError) -> HostError {
    match &error {
        RewriteError::Unproven { .. } => HostError::Usage(format!(
            "{name}: {error}; --trust NAME leaves such a function as it is, unchecked"
        )),
        RewriteError::Refused { .. } => HostError::Usage(format!("{name}: {error}")),
        _ => error.into(),
    }
}
