//! Which drivers of a kernel have power-management code fit for checkpoints: Table 7 of the FGFT paper, for any kernel.

use crate::power::{Bus, Power, drivers};
use guardrail_binfmt::{Btf, KernelImage, ModuleImage};
use guardrail_host::{HostError, Progress, files};
use guardrail_report::columns::table;
use guardrail_vm::installed::Target;
use guardrail_vm::modules::Modules;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The version of the JSON form.
const SCHEMA: &str = "guardrail-transact-survey/1";

/// The classes, by the folders of their modules below `kernel/`; the first that fits counts.
const CLASSES: [(&str, &str); 9] = [
    ("drivers/net/wireless/", "wireless"),
    ("drivers/net/", "net"),
    ("sound/", "sound"),
    ("drivers/ata/", "ATA"),
    ("drivers/usb/storage/", "USB storage"),
    ("drivers/scsi/", "SCSI"),
    ("drivers/nvme/", "NVMe"),
    ("drivers/block/", "block"),
    ("drivers/input/", "input"),
];

/// What to look through.
#[derive(Clone, Debug)]
pub struct SurveyPlan {
    /// The kernel by name or path.
    pub kernel: String,
    /// Whether to count the modules of all folders, each a class of its own, and not only those of the paper's classes.
    pub all: bool,
}

/// The drivers of one class and bus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The class, such as `net`.
    pub class: String,
    /// The bus, such as `PCI`.
    pub bus: String,
    /// How many modules have such a driver.
    pub drivers: usize,
    /// How many of them have power management.
    pub with_power_management: usize,
    /// Those that a checkpoint can rely on.
    pub fit: Vec<String>,
    /// Those that are not fit, with the reason.
    pub unfit: BTreeMap<String, String>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Survey {
    /// The version of this form.
    pub schema: &'static str,
    /// The kernel's release.
    pub kernel: String,
    /// By class and bus.
    pub rows: Vec<Row>,
}

impl Survey {
    /// The table, and below it the drivers that are not fit.
    pub fn text(&self) -> String {
        let sum = |number: fn(&Row) -> usize| self.rows.iter().map(number).sum::<usize>();
        let total = Row {
            class: "total".to_owned(),
            bus: "-".to_owned(),
            drivers: sum(|row| row.drivers),
            with_power_management: sum(|row| row.with_power_management),
            ..Row::default()
        };
        let head = ["class", "bus", "drivers", "with power management", "share", "fit"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(self.rows.iter().map(|row| row.cells(row.fit.len())));
        lines.push(total.cells(sum(|row| row.fit.len())));
        let mut text = table(&lines);
        for row in self.rows.iter().filter(|row| !row.unfit.is_empty()) {
            let _ = write!(text, "\nnot fit, {} {}:\n", row.class, row.bus);
            for (driver, why) in &row.unfit {
                let _ = writeln!(text, "  {driver:<24} {why}");
            }
        }
        text
    }

    /// The same as JSON.
    pub fn json(&self) -> Result<String, HostError> {
        serde_json::to_string_pretty(self)
            .map_err(|error| HostError::Run(format!("the survey has no JSON form: {error}")))
    }
}

/// The class of a module by the folder of its file.
fn class(path: &Path, all: bool) -> Option<String> {
    let path = path.to_str()?;
    let (_, below) = path.split_once("/kernel/")?;
    if let Some((_, class)) = CLASSES.iter().find(|(folder, _)| below.starts_with(folder)) {
        return Some((*class).to_owned());
    }
    let (folder, _) = below.rsplit_once('/')?;
    let folder = folder.split('/').take(2).collect::<Vec<_>>().join("/");
    all.then_some(folder)
}

/// Takes from the process what it does not need, given the files that it reads and those that it writes.
pub type Confine<'a> = dyn Fn(&[PathBuf], &[PathBuf]) -> Result<(), HostError> + 'a;

/// Looks through the modules of a kernel. It is fetched before `confine` is called, and no file of it is read before that.
pub fn survey(plan: &SurveyPlan, progress: &Progress, confine: &Confine<'_>) -> Result<Survey, HostError> {
    let cache = guardrail_host::cache()?;
    let packages = Packages::new(&cache);
    progress.step(&plan.kernel);
    let target = Target::find(&packages, &plan.kernel)?;
    let modules = Modules::of(&target.kernel, &Parser::here())?;
    let folders = files::linked(&target.kernel.modules).into_iter();
    let read: Vec<PathBuf> = folders.chain([target.kernel.vmlinuz.clone()]).collect();
    confine(&read, &[])?;
    let image = KernelImage::open(&target.kernel.vmlinuz)?;
    progress.step("modules");
    let mut rows: BTreeMap<(String, Bus), Row> = BTreeMap::new();
    for (name, path) in modules.files() {
        let Some(class) = class(path, plan.all) else { continue };
        let module = ModuleImage::open(path)?;
        let own = module.btf_bytes().and_then(|bytes| Btf::parse(bytes, Some(Arc::clone(image.btf()))).ok());
        let types = own.map_or_else(|| Arc::clone(image.btf()), Arc::new);
        for driver in drivers(&module, &types) {
            let row = rows.entry((class.clone(), driver.bus)).or_default();
            row.count(name, &driver.power);
        }
    }
    progress.finish();
    let rows = rows.into_iter().map(|((class, bus), row)| Row { class, bus: bus.name().to_owned(), ..row });
    Ok(Survey { schema: SCHEMA, kernel: image.release().to_owned(), rows: rows.collect() })
}

impl Row {
    fn cells(&self, fit: usize) -> Vec<String> {
        let share = 100.0 * self.with_power_management as f64 / self.drivers.max(1) as f64;
        let with = self.with_power_management;
        vec![
            self.class.clone(),
            self.bus.clone(),
            self.drivers.to_string(),
            with.to_string(),
            format!("{share:.0}%"),
            fit.to_string(),
        ]
    }

    fn count(&mut self, name: &str, power: &Power) {
        self.drivers += 1;
        self.with_power_management += usize::from(power.is_there());
        if power.is_fit() {
            self.fit.push(name.to_owned());
        } else {
            self.unfit.insert(name.to_owned(), power.why());
        }
    }
}
