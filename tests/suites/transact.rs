//! Entry points of guarded drivers that run as transactions, and which drivers have power-management code that can restore their
//! devices.

use guardrail_tests::workshop::Workshop;
use guardrail_tests::{Checked, compiled, ensure, guardrail};
use guardrail_vm::Cache;
use guardrail_vm::kernels::NAMES;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![
        Trial::test("what cannot be surveyed is refused in a sentence", refused),
        Trial::test("findings select the entries that lead to them", selected),
        Trial::test("what selects no entry is refused in a sentence", unselected),
    ];
    for kernel in NAMES {
        let name = format!("power management is found in binaries, on {kernel}");
        trials.push(Trial::test(name, move || survey(kernel)).with_ignored_flag(kernel == "6.12"));
    }
    for kernel in NAMES {
        for subject in &SUBJECTS {
            let name = format!("{}'s calls are rolled back, on {kernel}", subject.driver);
            let trial = Trial::test(name, move || rolls_back(kernel, subject));
            trials.push(trial.with_ignored_flag(!subject.always.contains(&kernel)));
        }
    }
    for kernel in NAMES {
        for subject in &OFTEN {
            let name = format!("a thousand faults in a row leave nothing of {}, on {kernel}", subject.driver);
            trials.push(Trial::test(name, move || rolls_back(kernel, subject)).with_ignored_flag(true));
        }
    }
    guardrail_tests::run(arguments, trials)
}

/// A driver whose calls fault.
struct Subject {
    driver: &'static str,
    /// Its device, where the usual one does not do.
    device: Option<&'static str>,
    /// The parts of the workload, behind those that all share.
    parts: &'static [&'static str],
    /// A program of the fixtures that the workload needs; empty for none.
    program: &'static str,
    /// Which entries fault, and where.
    variables: &'static [(&'static str, &'static str)],
    /// The kernels on which it is always tested.
    always: &'static [&'static str],
}

/// A network driver: the entries that set the pause parameters, the largest packet, and the size of a ring, that send a packet
/// and that poll.
const fn card(driver: &'static str, variables: &'static [(&'static str, &'static str)]) -> Subject {
    Subject { driver, device: None, parts: &["transact.sh"], program: "", variables, always: &[] }
}

/// A controller of disks, without doorbells in memory. With these, requests that wait for a reset are lost, also for a reset that
/// the driver does by itself.
const CONTROLLER: &str = "nvme,serial=guardrail,dbcs=off";

const SUBJECTS: [Subject; 9] = [
    card(
        "e1000",
        &[
            ("PAUSE", "e1000_set_pauseparam"),
            ("MTU", "e1000_change_mtu"),
            ("RING", "e1000_set_ringparam"),
            ("SEND", "e1000_xmit_frame"),
            ("POLL", "e1000_clean"),
        ],
    ),
    card("8139cp", &[("MTU", "cp_change_mtu"), ("SEND", "cp_start_xmit"), ("POLL", "cp_rx_poll")]),
    Subject {
        always: &["6.1"],
        ..card(
            "pcnet32",
            &[
                ("RING", "pcnet32_set_ringparam"),
                ("SEND", "pcnet32_start_xmit"),
                ("POLL", "pcnet32_poll"),
                ("RESTORES", "5"),
            ],
        )
    },
    card("e100", &[("RING", "e100_set_ringparam"), ("SEND", "e100_xmit_frame"), ("POLL", "e100_poll")]),
    Subject { always: &["6.12"], ..card("virtio_net", &[("SEND", "start_xmit"), ("POLL", "virtnet_poll")]) },
    Subject {
        driver: "nvme",
        device: Some(CONTROLLER),
        parts: &["transact-disk.sh"],
        program: "",
        variables: &[("SEND", "nvme_queue_rq"), ("FAULTS", "30")],
        always: &["6.1"],
    },
    Subject {
        driver: "snd_ens1370",
        device: None,
        parts: &["player.sh", "transact-sound.sh"],
        program: "mixer",
        variables: &[
            (
                "ENTRIES",
                "snd_ensoniq_playback?_open snd_ensoniq_playback?_prepare snd_ensoniq_trigger snd_ensoniq_playback?_close",
            ),
            ("FEW", "1 3 7 9"),
            ("MANY", "1 3 7 13 21 31 43 57"),
        ],
        always: &["6.1"],
    },
    // At the 16th store, the device has a request; from the 18th on, the driver has waited for 6 s.
    Subject {
        driver: "usb_storage",
        device: None,
        parts: &["transact-usb.sh"],
        program: "reset",
        variables: &[("STORES", "1 3 7 11 14 15 16 17 18 24 36 48"), ("COMMANDS", "20")],
        always: &[],
    },
    Subject {
        driver: "psmouse",
        device: None,
        parts: &["transact-mouse.sh"],
        program: "",
        variables: &[("MOVES", "psmouse_*"), ("MANY", "1 3 7 13 21 31")],
        always: &[],
    },
];

/// A driver with one call that faults a thousand times: the entry, the command that leads to it, and the number of its stores.
const fn often(
    driver: &'static str,
    program: &'static str,
    variables: &'static [(&'static str, &'static str)],
) -> Subject {
    Subject { driver, device: None, parts: &["transact-often.sh"], program, variables, always: &[] }
}

const OFTEN: [Subject; 3] = [
    often(
        "pcnet32",
        "",
        &[("FAULTS", "1000"), ("ENTRY", "pcnet32_set_ringparam"), ("CALL", "ring"), ("STORES", "5")],
    ),
    often(
        "psmouse",
        "",
        &[("FAULTS", "1000"), ("ENTRY", "psmouse_attr_set_helper"), ("CALL", "rate"), ("STORES", "3")],
    ),
    often(
        "snd_ens1370",
        "mixer",
        &[("FAULTS", "1000"), ("ENTRY", "snd_ak4531_put_double"), ("CALL", "volume"), ("STORES", "1")],
    ),
];

/// A driver faults at many stores of calls that are transactions.
fn rolls_back(kernel: &str, subject: &Subject) -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let folder = tempfile::tempdir()?;
    let workshop = Workshop::of(&packages, kernel)?;
    let guarded = workshop.transacting(&workshop.modules.plan(subject.driver)?)?;
    let guarded = workshop.write(&guarded, folder.path())?;
    let workload = folder.path().join("workload.sh");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = ["../../../guest/workloads/device.sh", "recovery.sh", "transaction.sh"];
    let parts = shared.iter().chain(subject.parts).map(|part| root.join("fixtures/guarded").join(part));
    std::fs::write(&workload, parts.map(std::fs::read_to_string).collect::<Result<Vec<_>, _>>()?.concat())?;
    let request = Request {
        driver: &guarded,
        kernel,
        device: subject.device,
        workload: workload.to_str(),
        ..Request::default()
    };
    let prepared = Prepared::new(&packages, &Parser::here(), request, &mut |_| {})?;
    let mut options = Options::new(folder.path());
    options.kernel_arguments = vec!["loglevel=7".to_owned(), "log_buf_len=8M".to_owned()];
    // TCP doubles its waits where packets are lost again and again.
    options.limits.silence = Duration::from_secs(240);
    if !subject.program.is_empty() {
        options.files.push((subject.program.to_owned(), compiled(subject.program, folder.path())?));
    }
    let variables = subject.variables.iter().chain(&[("STEP", "1"), ("TIMES", "5")]);
    options.variables.extend(variables.map(|(name, value)| ((*name).into(), (*value).into())));
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

/// Guards pcnet32 with entries that are selected so. `@` stands for a file with this text.
fn guard(what: &str, file: &str, status: i32) -> Result<Checked, Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("findings.json");
    std::fs::write(&path, file)?;
    let (what, out) = (what.replace('@', &format!("@{}", path.display())), folder.path().join("out"));
    let out = out.to_str().ok_or("a path")?;
    let arguments =
        ["guard", "pcnet32", "--kernel", "6.1", "-o", out, "--format", "json", "--transact", &what];
    guardrail(&arguments).with(&[status])
}

/// A report of a driver, whose finding has these functions of a module as its call stack.
fn report(driver: &str, module: &str, functions: &[&str]) -> String {
    let frame = |name: &&str| serde_json::json!({ "function": name, "module": module });
    let stack: Vec<Value> = functions.iter().map(frame).collect();
    let (id, message) = ("1", "a fault");
    let finding = serde_json::json!({ "id": id, "checker": "dmcheck", "kind": "leak", "message": message, "stack": stack });
    serde_json::json!({
        "schema": "guardrail/1", "driver": driver, "kernel": "6.1", "tools": [], "mode": "permissive", "run": {},
        "findings": if functions.is_empty() { vec![] } else { vec![finding] },
    })
    .to_string()
}

/// A SARIF file of another tool, whose result is in this function.
fn sarif(function: &str) -> String {
    let place = serde_json::json!({ "logicalLocations": [{ "fullyQualifiedName": function }] });
    let run =
        serde_json::json!({ "tool": { "driver": { "name": "x" } }, "results": [{ "locations": [place] }] });
    serde_json::json!({ "version": "2.1.0", "runs": [run] }).to_string()
}

fn selected() -> Result<(), Failed> {
    for (what, file, wanted, unwanted) in [
        // An entry is named.
        ("@", report("pcnet32", "pcnet32", &["pcnet32_poll"]), vec!["pcnet32_poll"], "pcnet32_open"),
        // Entries lead to a function by one call, and by several.
        (
            "@",
            sarif("pcnet32.c::pcnet32_purge_tx_ring"),
            vec!["pcnet32_close", "pcnet32_tx_timeout", "pcnet32_set_ringparam"],
            "pcnet32_get_regs",
        ),
        (
            "pcnet32_get_*,@",
            report("pcnet32", "pcnet32", &["pcnet32_poll", "pcnet32_probe1"]),
            vec!["pcnet32_get_regs", "pcnet32_poll"],
            "pcnet32_open",
        ),
    ] {
        let ran = guard(what, &file, 0)?;
        let summary: Value = serde_json::from_str(&ran.stdout)?;
        let transactions = &summary["drivers"][0]["transactions"];
        let found = names(&transactions["selected"]);
        ensure(wanted.iter().all(|name| found.contains(name)) && !found.contains(&unwanted), || {
            format!("{what} selects {found:?}")
        })?;
        let never = names(&transactions["never"]);
        let unfit =
            ["pcnet32_probe_pci", "pcnet32_pm_suspend", "pcnet32_init_module", "pcnet32_cleanup_module"];
        ensure(unfit.iter().all(|name| never.contains(name)), || format!("{never:?}"))?;
    }
    Ok(())
}

fn unselected() -> Result<(), Failed> {
    let none = String::new;
    for (what, file, words) in [
        (
            "@",
            report("e1000", "e1000", &["e1000_clean"]),
            "it is a report of e1000, and pcnet32 is to be guarded",
        ),
        (
            "@",
            report("pcnet32", "mii", &["mii_link_ok"]),
            "its findings name no function of pcnet32; name a report",
        ),
        ("@", sarif("main"), "its findings name no function of pcnet32; name a report"),
        ("@", report("pcnet32", "pcnet32", &[]), "it has no finding, so it selects nothing; leave it out"),
        (
            "@",
            sarif("pcnet32_probe1(unsigned long)"),
            "name only what pcnet32_probe_pci leads to, and that cannot be a transaction, since it binds or unbinds a",
        ),
        ("pcnet32_set_ringparm", none(), "no such entry of pcnet32; the nearest are pcnet32_set_ringparam, "),
        (
            "pcnet32_probe_pci",
            none(),
            "pcnet32_probe_pci cannot be a transaction, since it binds or unbinds a device",
        ),
        (
            "*_pm_suspend",
            none(),
            "pcnet32_pm_suspend cannot be a transaction, since it saves or restores the device",
        ),
        ("pcnet32_init_module", none(), "cannot be a transaction, since it is the module's init function"),
        ("cleanup_module", none(), "cannot be a transaction, since it is the module's exit function"),
        (
            "pcnet32_restart",
            none(),
            "it is a function of pcnet32, but no entry; those that lead to it are pcnet32_",
        ),
        (
            "pcnet32_poll,xyz*",
            none(),
            "--transact xyz*: there is no such entry of pcnet32; DIR/guard.json has all after",
        ),
    ] {
        let ran = guard(what, &file, 2)?;
        let error = ran.stderr.lines().last().unwrap_or_default();
        ensure(error.starts_with("error: --transact ") && error.contains(words), || {
            format!("{what}: {error}")
        })?;
    }
    Ok(())
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
