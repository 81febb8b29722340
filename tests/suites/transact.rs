//! Entry points of guarded drivers that run as transactions, and which drivers have power-management code that can restore their
//! devices.

use guardrail_tests::workshop::Workshop;
use guardrail_tests::{ensure, guardrail};
use guardrail_vm::Cache;
use guardrail_vm::kernels::NAMES;
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![Trial::test("what cannot be surveyed is refused in a sentence", refused)];
    for kernel in NAMES {
        let name = format!("power management is found in binaries, on {kernel}");
        trials.push(Trial::test(name, move || survey(kernel)));
    }
    for kernel in NAMES {
        for card in &CARDS {
            let name = format!("{}'s calls are rolled back, on {kernel}", card.driver);
            let trial = Trial::test(name, move || rolls_back(kernel, card));
            trials.push(trial.with_ignored_flag(!card.always.contains(&kernel)));
        }
    }
    guardrail_tests::run(arguments, trials)
}

/// A network driver, with entries that fault.
struct Card {
    driver: &'static str,
    /// Entries that set the pause parameters, the largest packet, and the size of a ring; empty where it has none.
    sets: [&'static str; 3],
    /// Entries that send a packet and that poll.
    moves: [&'static str; 2],
    /// The kernels on which it is always tested.
    always: &'static [&'static str],
}

const CARDS: [Card; 5] = [
    Card {
        driver: "e1000",
        sets: ["e1000_set_pauseparam", "e1000_change_mtu", "e1000_set_ringparam"],
        moves: ["e1000_xmit_frame", "e1000_clean"],
        always: &[],
    },
    Card {
        driver: "8139cp",
        sets: ["", "cp_change_mtu", ""],
        moves: ["cp_start_xmit", "cp_rx_poll"],
        always: &[],
    },
    Card {
        driver: "pcnet32",
        sets: ["", "", "pcnet32_set_ringparam"],
        moves: ["pcnet32_start_xmit", "pcnet32_poll"],
        always: &["6.1", "6.12"],
    },
    Card {
        driver: "e100",
        sets: ["", "", "e100_set_ringparam"],
        moves: ["e100_xmit_frame", "e100_poll"],
        always: &[],
    },
    Card { driver: "virtio_net", sets: ["", "", ""], moves: ["start_xmit", "virtnet_poll"], always: &[] },
];

/// A network driver faults at many stores of calls that are transactions.
fn rolls_back(kernel: &str, card: &Card) -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let folder = tempfile::tempdir()?;
    let workshop = Workshop::of(&packages, kernel)?;
    let guarded = workshop.transacting(&workshop.modules.plan(card.driver)?)?;
    let guarded = workshop.write(&guarded, folder.path())?;
    let workload = folder.path().join("workload.sh");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let parts =
        ["../guest/workloads/device.sh", "fixtures/guarded/recovery.sh", "fixtures/guarded/transact.sh"];
    let parts = parts.map(|part| std::fs::read_to_string(root.join(part))).into_iter();
    std::fs::write(&workload, parts.collect::<Result<Vec<_>, _>>()?.concat())?;
    let request = Request { driver: &guarded, more: &[], kernel, device: None, workload: workload.to_str() };
    let prepared = Prepared::new(&packages, request, &mut |_| {})?;
    let mut options = Options::new(folder.path());
    options.kernel_arguments = vec!["loglevel=7".to_owned(), "log_buf_len=8M".to_owned()];
    // TCP doubles its waits where packets are lost again and again.
    options.limits.silence = Duration::from_secs(240);
    let names = ["PAUSE", "MTU", "RING", "SEND", "POLL", "STEP", "TIMES"];
    let values = card.sets.iter().chain(&card.moves).copied().chain(["1", "5"]);
    options.variables.extend(names.into_iter().zip(values).map(|(name, value)| (name.into(), value.into())));
    let ran = guardrail_tests::unwatched(&prepared, options, 900)?;
    let says = |text: &&str| ran.console.contains(*text);
    let bad = ["BUG:", "WARNING:", "Oops", "Call Trace:"].into_iter().find(says);
    ensure(ran.outcome == Outcome::Completed && bad.is_none(), || {
        format!("{}; {bad:?}\n{}", ran.outcome, ran.console)
    })
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
