//! Runs of stock drivers, recorded here: the protocols accept them, and refuse them where they are made wrong.

use guardrail_tests::{guardrail, root};
use std::fs;
use std::path::Path;

/// A stock driver, its workload, and the protocols that see something of its run.
const DRIVERS: [(&str, &str, &[&str]); 2] =
    [("8139cp", "network", &["pci", "ethernet", "irq"]), ("ahci", "load", &["pci"])];

/// Follows a recorded run: the exit status and what is printed.
fn simulate(name: &str, trace: &Path, more: &[&str]) -> (i32, String) {
    let words = [&["protocol", "simulate", name, "--trace", trace.to_str().unwrap()], more].concat();
    let done = guardrail(&words);
    (done.status, done.stdout)
}

#[test]
fn recorded_runs_of_stock_drivers_are_runs_of_the_protocols() {
    let folder = tempfile::tempdir().unwrap();
    for (driver, workload, protocols) in DRIVERS {
        let trace = folder.path().join(format!("{driver}.trace"));
        let out = folder.path().join(driver);
        let done = guardrail(&[
            "check",
            driver,
            "--kernel",
            "6.1",
            "--workload",
            workload,
            "--record",
            trace.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ]);
        assert!(done.status <= 1, "{driver}: {}", done.stderr);
        for name in protocols {
            let (status, text) = simulate(name, &trace, &[]);
            assert_eq!(status, 0, "{driver}: {text}");
            assert!(
                text.contains("accepted: ") && !text.contains("accepted: 0 "),
                "{driver}, {name}: {text}"
            );
        }
    }
    // A device that is open where opening it has failed.
    let text = fs::read_to_string(root().join("knowledge/net/protocol.chart")).unwrap();
    let (_, protocol) = text.split_once("protocol ethernet\n").unwrap();
    let wrong = protocol.replace("is end open if zero", "is end open if nonzero");
    let wrong =
        wrong.replace("opening -> down   is end open if nonzero", "opening -> down   is end open if zero");
    assert_ne!(wrong, protocol);
    let chart = folder.path().join("wrong.chart");
    fs::write(&chart, format!("protocol wrong\n{wrong}")).unwrap();
    let trace = folder.path().join("8139cp.trace");
    let (status, text) = simulate("wrong", &trace, &["--chart", chart.to_str().unwrap()]);
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("refused: event 4, begin of "), "{text}");
}
