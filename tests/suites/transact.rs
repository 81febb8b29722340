//! Which drivers have power-management code that can restore their devices, as `guardrail transact survey` finds it.

use guardrail_tests::{ensure, guardrail};
use guardrail_vm::kernels::NAMES;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![Trial::test("what cannot be surveyed is refused in a sentence", refused)];
    for kernel in NAMES {
        let name = format!("power management is found in binaries, on {kernel}");
        trials.push(Trial::test(name, move || survey(kernel)));
    }
    guardrail_tests::run(arguments, trials)
}

/// Drivers with their class and bus, and whether their code can restore a device; their sources say so.
const DRIVERS: [(&str, &str, &str, bool); 14] = [
    ("e1000", "net", "PCI", true),
    ("e100", "net", "PCI", true),
    ("8139cp", "net", "PCI", true),
    ("pcnet32", "net", "PCI", true),
    ("ne2k_pci", "net", "PCI", true),
    ("pegasus", "net", "USB", true),
    ("virtio_net", "net", "virtio", true),
    ("nvme", "NVMe", "PCI", true),
    ("ahci", "ATA", "PCI", true),
    ("usb_storage", "USB storage", "USB", true),
    ("snd_ens1370", "sound", "PCI", true),
    ("psmouse", "input", "serio", true),
    ("sym53c8xx", "SCSI", "PCI", false),
    ("qede", "net", "PCI", false),
];

/// The elements of a list, or the names of an object's members.
fn names(list: &Value) -> Vec<&str> {
    let members = list.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    list.as_array().into_iter().flatten().filter_map(Value::as_str).chain(members).collect()
}

fn survey(kernel: &str) -> Result<(), Failed> {
    let ran = guardrail(&["transact", "survey", kernel, "--json"]).with(&[0])?;
    let found: Value = serde_json::from_str(&ran.stdout)?;
    let rows = found["rows"].as_array().ok_or("no rows")?;
    for (driver, class, bus, fit) in DRIVERS {
        let row = rows.iter().find(|row| row["class"] == class && row["bus"] == bus);
        let row = row.ok_or_else(|| format!("no row of {class} with {bus}"))?;
        let (able, unable) = (names(&row["fit"]), names(&row["unfit"]));
        let there = if fit { able.contains(&driver) } else { unable.contains(&driver) };
        let number = |name: &str| row[name].as_u64().unwrap_or_default() as usize;
        let adds_up =
            able.len() + unable.len() == number("drivers") && able.len() <= number("with_power_management");
        ensure(there && adds_up, || format!("{driver} of {class} with {bus}: {row}"))?;
    }
    // The paper found 76% of 284 drivers; half of them would mean that something is not found any more.
    let sum = |name: &str| rows.iter().filter_map(|row| row[name].as_u64()).sum::<u64>();
    let (drivers, with) = (sum("drivers"), sum("with_power_management"));
    ensure(drivers > 400 && with * 100 > drivers * 60, || format!("{with} of {drivers}"))
}

fn refused() -> Result<(), Failed> {
    for (arguments, words) in [
        (["transact", "survey", "9.9"], "no kernel named '9.9'"),
        (["transact", "survey", "/dev/null"], "/dev/null"),
        (["transact", "surve", "6.1"], "similar subcommand exists: 'survey'"),
    ] {
        let ran = guardrail(&arguments).with(&[2])?;
        ensure(ran.stderr.contains(words), || format!("{arguments:?}: {}", ran.stderr))?;
    }
    Ok(())
}
