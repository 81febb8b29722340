//! A guest that was saved at a finding, and what gdb sees in it.

use guardrail_host::zoo;
use guardrail_tests::{check, findings, guardrail, root};
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::{Cache, kernels};
use std::process::Command;

/// gdb stands at the instruction of the finding, held before it reached the device: with its line, its callers in the kernel, and
/// the kernel's own data.
#[test]
fn gdb_opens_the_guest_at_the_finding() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let result = check(&["zoo/uninit-mmio", "--snapshot-on-finding", "--out", out]);
    let report = result.report().unwrap_or_else(|why| panic!("{why:?}"));
    assert_eq!(result.status, 1, "{report:#}\n{}", result.stderr);
    let finding = findings(report).next().expect("a finding");
    let id = finding["id"].as_str().expect("an id");
    let message = finding["message"].as_str().expect("a message");

    let asked =
        ["x/s &linux_banner", "print ((struct task_struct *)&init_task)->comm", "thread apply all print $pc"];
    // What gdb starts is confined as gdb is.
    let rights = ["shell grep -E '^(CapEff|Seccomp):' /proc/self/status"];
    let commands: Vec<&str> = asked.iter().chain(&rights).flat_map(|command| ["-ex", command]).collect();
    let result = guardrail(&[&["debug", &id[..6], "--out", out, "--batch", "--"][..], &commands].concat());
    let text = &result.stdout;
    assert_eq!(result.status, 0, "{text}\n{}", result.stderr);
    let has = |words: &[&str]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    // The line that the zoo's source marks.
    let file = "zoo/uninit/uninit-mmio/uninit_mmio.c";
    let source = std::fs::read_to_string(root().join(file)).unwrap();
    let marked = source.lines().position(|line| line.contains("BUG:")).expect("the bug is marked");
    let place = format!("{file}:{}", marked + 1);
    for words in [
        &[id, "uninit-to-device", message][..],
        // The frame of the finding, that of its caller, and two of the kernel, with or without its debug file.
        &["uninit_mmio_program (", &place],
        &[" in uninit_mmio_probe (", file],
        &[" in local_pci_probe ("],
        &[" do_syscall_64 ("],
        &["0x", "<uninit_mmio_program+", "mov "],
        &["<linux_banner>:", "\"Linux version 6.1."],
        &["= \"swapper/0\\000"],
        &["CapEff:\t0000000000000000"],
        &["Seccomp:\t2"],
    ] {
        assert!(has(words), "{words:?} is missing in\n{text}\n{}", result.stderr);
    }
    // The vCPU stands right there, or an interrupt came while the access was held, whose frames are the inner ones.
    let interrupt = text.find("<signal handler called>").zip(text.find("uninit_mmio_program ("));
    let interrupted = interrupt.is_some_and(|(handler, held)| handler < held);
    assert!(has(&["=> 0x", "<uninit_mmio_program+"]) || interrupted, "{text}");
    // A CPU each.
    assert_eq!(text.lines().filter(|line| line.starts_with("Thread ")).count(), 2, "{text}");

    let other = guardrail(&["debug", "xyz", "--out", out]);
    let sentence = format!("error: no finding of the run is called 'xyz'; the guest was saved at {id}\n");
    assert_eq!((other.status, other.stderr), (2, sentence));
}

/// A stripped driver has the lines and inlined functions of its debug file, and finds it again when the trace is analyzed. A debug
/// file of another driver is refused.
#[test]
fn a_stripped_driver_has_the_lines_of_its_debug_file() {
    let packages = Packages::new(&Cache::open().unwrap());
    let kernel = kernels::find(&packages, kernels::DEFAULT).unwrap();
    let whole = zoo::plan(&packages, &Parser::here(), &kernel, "zoo/uaf-inlined").unwrap().driver;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (debug, stripped, trace) = (path("whole.ko"), path("uaf_inlined.ko"), path("run.trace"));
    std::fs::write(&debug, &whole.bytes).unwrap();
    // A section of its own, so that no earlier run has left a debug file of this module.
    let section = format!("--add-section=.test={}", path("stamp"));
    std::fs::write(path("stamp"), format!("{:?}", std::time::SystemTime::now())).unwrap();
    let copied =
        Command::new("objcopy").args(["--strip-debug", &section, &debug, &stripped]).status().unwrap();
    assert!(copied.success());

    let source = |report: &serde_json::Value| {
        let finding = findings(report).find(|finding| finding["kind"] == "use-after-free").expect("the bug");
        let inlined = finding["stack"][0]["inlined"].as_array().map_or(0, Vec::len);
        (finding["location"]["line"].as_u64(), inlined)
    };
    let bare = check(&[&stripped, "--record", &trace]);
    assert_eq!(source(bare.report().unwrap()), (None, 0), "{}", bare.stderr);
    let analyze = |more: &[&str]| {
        guardrail(&[&["analyze", &trace, "--open", &stripped, "--format", "json"], more].concat())
    };
    let unopened = guardrail(&["analyze", &trace]);
    let sentence = format!("in a folder of kernels; if you trust that, add --open {stripped}");
    assert!(unopened.status == 2 && unopened.stderr.contains(&sentence), "{}", unopened.stderr);
    let other = zoo::plan(&packages, &Parser::here(), &kernel, "zoo/uaf-timer")
        .unwrap()
        .driver
        .path
        .display()
        .to_string();
    let refused = analyze(&["--debug-file", &other]);
    assert_eq!(refused.status, 2);
    assert!(
        refused.stderr.contains("it is the debug file of no driver of this run: its build ID is "),
        "{}",
        refused.stderr
    );
    let without = analyze(&["--debug-file", &stripped]);
    assert!(without.stderr.contains("it has no debug information (DWARF)"), "{}", without.stderr);
    let with = analyze(&["--debug-file", &debug]);
    let (line, inlined) = source(with.report().unwrap());
    assert!(line.is_some() && inlined == 2, "{line:?} {inlined}\n{}", with.stdout);
    let again = analyze(&[]);
    assert_eq!(source(again.report().unwrap()), (line, inlined), "the file is kept in the cache");
}
