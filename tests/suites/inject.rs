//! Mutants of a network driver and of a file system in guests: each receives a verdict, and the verdicts are
//! right where the bug is known.

use guardrail_tests::mutants::{begins_with, campaign, redirected, stock, write};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::path::Path;

fn main() {
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("known mutants get the verdicts that they must get", known_mutants),
        Trial::test("every mutant gets a verdict, once", every_mutant),
        Trial::test("a guarded mutant is contained, and the driver comes again", recovers),
        Trial::test("what a file system hands to the kernel does no harm", file_system),
    ];
    // Some verdicts depend on time.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

fn results(folder: &Path) -> Result<Vec<Value>, Failed> {
    let text = std::fs::read_to_string(folder.join("results.jsonl"))?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

fn known_mutants() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let stock = stock("e1000")?;
    let file = |name: &str, bytes: &[u8]| write(folder.path(), name, bytes);
    // The message at load is replaced by a free of memory that nobody allocated: the allocator crashes.
    let outside = file("outside", &redirected(&stock, ".init.text", "_printk", "kfree")?)?;
    // The module is built for another kind of kernel.
    let magic = b"SMP preempt mod_unload";
    let at = stock.windows(magic.len()).position(|part| part == magic).ok_or("no vermagic")?;
    let mut other = stock.clone();
    other[at] = b'X';
    let refused = file("refused", &other)?;
    let same = file("same", &stock)?;
    // One module has an invalid instruction where a packet is sent, and one has a jump to itself.
    let inside = file("inside", &begins_with(&stock, "e1000_xmit_frame", &[0x0f, 0x0b])?)?;
    let hang = file("hang", &begins_with(&stock, "e1000_xmit_frame", &[0xeb, 0xfe])?)?;
    let out = folder.path().join("campaign");
    let mutants = [&outside, &refused, &same, &inside, &hang].map(|path| ["--mutant", path.as_str()]);
    let result = campaign("e1000", &out, mutants.as_flattened())?.with(&[0])?;
    let lines = results(&out)?;
    let of = |name: &str| lines.iter().find(|line| line["mutant"] == name).cloned().unwrap_or_default();
    assert_eq!((&of("outside")["verdict"], &of("outside")["how"]), (&"escaped".into(), &"crash".into()));
    let at = of("outside")["at"].as_str().unwrap_or_default().to_owned();
    assert!(!at.is_empty() && !at.contains("e1000"), "{at}");
    for (name, verdict, how) in [("inside", "internal", "crash"), ("hang", "escaped", "hang")] {
        let line = of(name);
        assert_eq!((&line["verdict"], &line["how"]), (&verdict.into(), &how.into()), "{line:#}");
    }
    assert_eq!(of("refused")["verdict"], "refused", "{:#}", of("refused"));
    assert_eq!(of("same")["verdict"], "none", "{:#}", of("same"));
    assert_eq!(of("stock")["verdict"], "none", "{:#}", of("stock"));
    let row = &result.report()?[0];
    assert_eq!((&row["mutants"], &row["escaped"]), (&5.into(), &2.into()), "{row:#}");
    assert_eq!((&row["crash"], &row["hang"], &row["internal"]), (&1.into(), &1.into(), &1.into()), "{row:#}");
    Ok(())
}

fn recovers() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    // The function that stops the driver's polls frees memory that is not the driver's, when the interface is
    // taken down.
    let mutant = redirected(&stock("e1000")?, ".text", "napi_disable", "kfree")?;
    let file = write(folder.path(), "frees", &mutant)?;
    let out = folder.path().join("campaign");
    campaign("e1000", &out, &["--guarded=recover", "--mutant", &file])?.with(&[0])?;
    let lines = results(&out)?;
    let guarded = |line: &&Value| line["mutant"] == "frees" && line["way"] == "guarded";
    let line = lines.iter().find(guarded).ok_or("it did not run guarded")?;
    assert_eq!((&line["verdict"], &line["how"]), (&"contained".into(), &"recovered".into()), "{line:#}");
    Ok(())
}

/// Each of these would crash the kernel if it ran on. The bugs are in the results of entries, in the
/// arguments of kernel functions, and in a call that was ended within the domain.
fn file_system() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (out, stock) = (folder.path().join("campaign"), stock("vfat")?);
    // A function without a call in it returns at once: `mov eax, N; ret`.
    let returns = |number: u32| [&[0xb8][..], &number.to_le_bytes(), &[0xc3]].concat();
    let mutants = [
        ("no-dentry", begins_with(&stock, "vfat_lookup", &returns(4))?, true),
        ("no-error", begins_with(&stock, "vfat_create", &returns(0x590_0000))?, true),
        ("no-string", redirected(&stock, ".text", "set_nlink", "strncmp")?, true),
        // The caller is in the domain, and unguarded it crashes by itself.
        ("no-setup", begins_with(&stock, "setup", &[0x0f, 0x0b])?, false),
    ];
    let mut files = Vec::new();
    for (name, bytes, _) in &mutants {
        files.push(write(folder.path(), name, bytes)?);
    }
    let mut arguments = vec!["--workload", "files", "--with", "fat", "--guarded=fail", "--timeout", "180"];
    arguments.extend(["--set", "FILES=2", "--set", "DISK_MB=8", "--set", "STRESSORS=", "--set", "OPTIONS="]);
    arguments.extend(files.iter().flat_map(|file| ["--mutant", file.as_str()]));
    campaign("vfat", &out, &arguments)?.with(&[0])?;
    let lines = results(&out)?;
    for (name, _, escapes) in &mutants {
        let of = |way: &str| {
            let line = lines.iter().find(|line| line["mutant"] == *name && line["way"] == way);
            line.cloned().unwrap_or_default()
        };
        let (plain, guarded) = (of("plain"), of("guarded"));
        assert_eq!((&plain["verdict"] == "escaped", &plain["how"]), (*escapes, &"crash".into()), "{plain:#}");
        assert_eq!(guarded["verdict"], "contained", "{guarded:#}");
    }
    Ok(())
}

fn every_mutant() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let kinds = "flip-branch,larger-copy,delete-assignment,missing-lock,early-free";
    let arguments = ["--kind", kinds, "--count", "1", "--seed", "3", "--timeout", "90"];
    let first = campaign("e1000", folder.path(), &arguments)?.with(&[0])?;
    let lines = results(folder.path())?;
    // There is a line for the stock driver, and one for each mutant.
    assert_eq!(lines.len(), 6);
    for line in lines.iter().filter(|line| line["mutant"] != "stock") {
        let verdict = line["verdict"].as_str().unwrap_or_default();
        assert!(["escaped", "internal", "none"].contains(&verdict), "{line:#}");
        let name = line["mutant"].as_str().unwrap_or_default();
        for kind in ["ko", "json"] {
            assert!(folder.path().join(format!("mutants/{name}.{kind}")).is_file(), "{name}.{kind}");
        }
    }
    let rows = first.report()?.as_array().ok_or("rows")?;
    assert_eq!(rows.len(), 6);
    assert_eq!((&rows[5]["name"], &rows[5]["mutants"]), (&"all".into(), &5.into()));
    // All verdicts are known, so nothing runs again.
    let again = campaign("e1000", folder.path(), &arguments)?;
    assert_eq!((again.status, &again.stdout), (0, &first.stdout), "{}", again.stderr);
    assert_eq!(results(folder.path())?, lines);
    // Runs with other settings do not belong to this campaign.
    let other = campaign("e1000", folder.path(), &[&arguments[..], &["--smp", "1"]].concat())?;
    assert_eq!(other.status, 2, "{}", other.stderr);
    Ok(())
}
