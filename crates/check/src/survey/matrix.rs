//! Decides which runs a survey consists of.

use guardrail_host::drivers::digest;
use guardrail_host::{HostError, Progress, files, folders, zoo};
use guardrail_report::survey::Position;
use guardrail_synthetic::Ids;
use guardrail_vm::catalog::{self, Catalog, Class, Entry};
use guardrail_vm::kernels;
use guardrail_vm::modules::Modules;
use guardrail_vm::packages::Packages;
use guardrail_vm::workload::Workload;

/// A row of the table: a driver, perhaps with a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    name: String,
    device: Option<String>,
    entry: Option<Entry>,
}

/// A planned run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The driver, device and kernel of the run.
    pub place: Position,
    /// The class of its driver.
    pub class: String,
    /// What it is made with: a digest of the kernel's image and of the modules; empty where these cannot be read.
    pub digest: String,
    /// Why the run is impossible, where that is known beforehand.
    pub not_available: Option<String>,
}

/// The drivers in a list, or all of the catalog. With `every_device`, each with every device that it binds. With `synthetic`,
/// modules that the catalog does not list have a synthetic device.
pub fn drivers(names: &[String], every_device: bool, synthetic: bool) -> Result<Vec<Driver>, HostError> {
    let known: Vec<Entry> =
        catalog::entries().into_iter().filter(|entry| !entry.name.contains(':')).collect();
    let wanted: Vec<(String, Option<Entry>)> = match names {
        [] => known.into_iter().map(|entry| (entry.name.clone(), Some(entry))).collect(),
        names => names
            .iter()
            .map(|name| {
                let plain = name.replace('-', "_");
                let entry = known.iter().find(|entry| entry.name == plain).cloned();
                (entry.as_ref().map_or(name.clone(), |entry| entry.name.clone()), entry)
            })
            .collect(),
    };
    let mut drivers: Vec<Driver> = Vec::new();
    for (name, entry) in wanted {
        let devices: Vec<Option<String>> = match &entry {
            // The first device is the default of a run.
            Some(entry) if every_device => std::iter::once(None)
                .chain(entry.devices.iter().skip(1).map(|device| Some(device.name.clone())))
                .collect(),
            // The zoo and files of the user's are as they are.
            None if synthetic && !name.contains('/') => vec![Some(catalog::SYNTHETIC.to_owned())],
            _ => vec![None],
        };
        for device in devices {
            let driver = Driver { name: name.clone(), device, entry: entry.clone() };
            if !drivers.contains(&driver) {
                drivers.push(driver);
            }
        }
    }
    Ok(drivers)
}

/// The kernels in a list, or all.
pub fn kernels(names: &[String]) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    let all = kernels::NAMES.map(str::to_owned);
    for name in if names.is_empty() { &all[..] } else { names } {
        if !list.contains(name) {
            list.push(name.clone());
        }
    }
    list
}

/// All runs, driver by driver.
pub fn plan(
    packages: &Packages,
    drivers: &[Driver],
    kernels: &[String],
    progress: &Progress,
) -> Result<Vec<Planned>, HostError> {
    let parser = folders::parser()?;
    let mut modules = Vec::new();
    for kernel in kernels {
        progress.step(&format!("kernel {kernel}"));
        let found = guardrail_vm::kernels::find(packages, kernel)?;
        let image = files::read(&found.vmlinuz).unwrap_or_default();
        modules.push((kernel, Modules::of(&found, &parser)?, digest(&image)));
    }
    let catalog = Catalog::with(None)?;
    let mut all = Vec::new();
    for driver in drivers {
        refuse_unknown(driver, modules.iter().map(|(_, modules, _)| modules))?;
        for (kernel, modules, image) in &modules {
            all.push(Planned {
                place: Position {
                    driver: driver.name.clone(),
                    device: device(&catalog, driver, modules),
                    kernel: (*kernel).clone(),
                },
                class: driver.entry.as_ref().map_or(Class::None, |entry| entry.class).name().to_owned(),
                digest: made_with(driver, modules, image),
                not_available: not_available(driver, kernel, modules),
            });
        }
    }
    Ok(all)
}

/// The device of a run. A module that binds no device by IDs, or one that the catalog has for its class, has no synthetic one.
fn device(catalog: &Catalog, driver: &Driver, modules: &Modules) -> Option<String> {
    let fits =
        |aliases: &[String]| Ids::first(aliases).is_some() && catalog.entry(&driver.name, aliases).is_none();
    let synthetic = driver.device.as_deref() == Some(catalog::SYNTHETIC);
    let keeps = !synthetic || modules.plan(&driver.name).is_ok_and(|plan| fits(&plan.aliases));
    driver.device.clone().filter(|_| keeps)
}

/// A digest of all that a run is made with, so that a cell of an older kernel or driver is not taken for it.
fn made_with(driver: &Driver, modules: &Modules, image: &str) -> String {
    if let Some(name) = zoo::named(&driver.name) {
        return zoo::sources(name).map_or(String::new(), |sources| format!("{image}-{sources:016x}"));
    }
    let also = driver.entry.iter().flat_map(|entry| &entry.also).map(|name| name.trim_end_matches('?'));
    let plans = [driver.name.as_str()].into_iter().chain(also).filter_map(|name| modules.plan(name).ok());
    let files = plans.flat_map(|plan| plan.before.into_iter().chain([plan.driver]));
    let digests: String = files.map(|module| digest(&module.bytes)).collect();
    format!("{image}-{}", digest(digests.as_bytes()))
}

/// Refuses a name that neither the catalog nor any kernel contains: its runs could only fail.
fn refuse_unknown<'a>(driver: &Driver, kernels: impl Iterator<Item = &'a Modules>) -> Result<(), HostError> {
    if driver.entry.is_some() || driver.name.contains('/') {
        return Ok(());
    }
    let mut refused = None;
    for modules in kernels {
        match modules.plan(&driver.name) {
            Err(error @ guardrail_vm::Error::Unknown { .. }) => refused = Some(error),
            _ => return Ok(()),
        }
    }
    refused.map_or(Ok(()), |error| Err(error.into()))
}

/// Refuses a workload that does not exist. The run shows whether the workload fits the driver.
pub fn refuse_workload(name: &str) -> Result<(), HostError> {
    match Workload::find(name, Class::None) {
        Err(guardrail_vm::Error::BadValue(_)) | Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Why a driver cannot run with a kernel: the catalog excludes it, or the kernel has no such modules.
fn not_available(driver: &Driver, kernel: &str, modules: &Modules) -> Option<String> {
    // A module file needs no check here; its run shows whether it fits.
    let entry = driver.entry.as_ref()?;
    if let Some(why) = entry.not_with(kernel) {
        return Some(why.to_owned());
    }
    if let Err(error) = modules.plan(&driver.name) {
        return Some(match error {
            guardrail_vm::Error::BuiltIn { .. } => {
                "it is part of this kernel's image, not a module".to_owned()
            }
            guardrail_vm::Error::Unknown { .. } => "this kernel does not have it".to_owned(),
            other => other.to_string(),
        });
    }
    let absent = entry.also.iter().find(|name| !name.ends_with('?') && !modules.has(name));
    absent.map(|name| format!("this kernel does not have {name}, which it needs to be of use"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_list_every_driver_of_the_catalog_is_meant() {
        let all = drivers(&[], false, false).unwrap();
        assert!(all.len() >= 25 && all.iter().all(|driver| driver.device.is_none()));
        assert!(drivers(&[], true, false).unwrap().len() > all.len());
    }

    #[test]
    fn drivers_are_named_once_and_spelled_one_way() {
        let names = ["snd-ens1370".to_owned(), "snd_ens1370".to_owned(), "zoo/uaf".to_owned()];
        let found = drivers(&names, false, false).unwrap();
        assert_eq!(
            found.iter().map(|driver| driver.name.as_str()).collect::<Vec<_>>(),
            ["snd_ens1370", "zoo/uaf"]
        );
        let e1000 = drivers(&["e1000".to_owned()], true, false).unwrap();
        assert_eq!(e1000[1].device.as_deref(), Some("e1000-82544gc"));
        assert_eq!(e1000.len(), 3);
    }

    #[test]
    fn a_module_that_is_not_listed_gets_a_synthetic_device_where_asked() {
        let names = ["e1000".to_owned(), "alx".to_owned(), "zoo/uaf".to_owned()];
        let devices = |synthetic| {
            let found = drivers(&names, false, synthetic).unwrap();
            found.into_iter().map(|driver| driver.device).collect::<Vec<_>>()
        };
        assert_eq!(devices(true), [None, Some("synthetic".to_owned()), None]);
        assert_eq!(devices(false), [None, None, None]);
    }

    #[test]
    fn a_workload_that_does_not_exist_is_refused_before_anything_runs() {
        assert!(refuse_workload("full").is_ok() && refuse_workload("network").is_ok());
        assert_eq!(refuse_workload("ful").unwrap_err().status(), guardrail_host::Status::Usage);
    }

    #[test]
    fn kernels_are_all_three_unless_named() {
        assert_eq!(kernels(&[]).len(), kernels::NAMES.len());
        assert_eq!(kernels(&["6.1".to_owned(), "6.1".to_owned()]), ["6.1"]);
    }
}
