//! Mutants of a network driver and of a file system in guests: each receives a verdict, and the verdicts are
//! right where the bug is known.

use guardrail_mutate::Subject;
use guardrail_tests::{SHORT, guardrail};
use guardrail_vm::Cache;
use guardrail_vm::kernels;
use guardrail_vm::modules::Modules;
use guardrail_vm::packages::Packages;
use libtest_mimic::{Arguments, Failed, Trial};
use object::LittleEndian;
use object::read::elf::{FileHeader, Sym};
use serde_json::Value;
use std::path::Path;

const KERNEL: &str = "6.1";

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

/// A stock driver without its signature, which would be invalid after a change.
fn stock(driver: &str) -> Result<Vec<u8>, Failed> {
    let packages = Packages::new(&Cache::open()?);
    let kernel = kernels::find(&packages, KERNEL)?;
    let signed = Modules::of(&kernel)?.plan(driver)?.driver.bytes;
    Ok(Subject::parse(driver, signed)?.stock().to_vec())
}

/// The same module, with calls of `from` in a section redirected to `to`.
fn redirected(stock: &[u8], section: &str, from: &str, to: &str) -> Result<Vec<u8>, Failed> {
    use object::read::elf::SectionHeader;
    let header = object::elf::FileHeader64::<LittleEndian>::parse(stock)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, stock)?;
    let symbols = sections.symbols(endian, stock, object::elf::SHT_SYMTAB)?;
    let index = |name: &str| {
        let found = symbols.iter().position(|symbol| {
            symbol.name(endian, symbols.strings()).is_ok_and(|other| other == name.as_bytes())
        });
        found.ok_or_else(|| Failed::from(format!("the driver does not know {name}")))
    };
    let (from, to) = (index(from)?, index(to)?);
    let mut mutant = stock.to_vec();
    let mut changed = 0;
    for one in sections.iter() {
        let of = sections.section_name(endian, one)?;
        let Some((entries, _)) =
            one.rela(endian, stock)?.filter(|_| of == format!(".rela{section}").as_bytes())
        else {
            continue;
        };
        let calls = |entry: &object::elf::Rela64<LittleEndian>| entry.r_sym(endian, false) == from as u32;
        for (i, _) in entries.iter().enumerate().filter(|(_, entry)| calls(entry)) {
            let symbol = one.sh_offset(endian) as usize + i * 24 + 12;
            mutant[symbol..symbol + 4].copy_from_slice(&(to as u32).to_le_bytes());
            changed += 1;
        }
    }
    match changed {
        0 => Err(format!("there is no such call in {section}").into()),
        _ => Ok(mutant),
    }
}

/// The same module, with other code at the beginning of a function, behind the call for tracing.
fn begins_with(stock: &[u8], function: &str, code: &[u8]) -> Result<Vec<u8>, Failed> {
    use object::read::elf::SectionHeader;
    let header = object::elf::FileHeader64::<LittleEndian>::parse(stock)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, stock)?;
    let symbols = sections.symbols(endian, stock, object::elf::SHT_SYMTAB)?;
    let named = |symbol: &&object::elf::Sym64<LittleEndian>| {
        symbol.name(endian, symbols.strings()).is_ok_and(|name| name == function.as_bytes())
    };
    let symbol = symbols.iter().find(named).ok_or("there is no such function")?;
    let section = sections.section(object::SectionIndex(symbol.st_shndx(endian).into()))?;
    let at = (section.sh_offset(endian) + symbol.st_value(endian)) as usize + 5;
    let mut mutant = stock.to_vec();
    mutant[at..at + code.len()].copy_from_slice(code);
    Ok(mutant)
}

fn results(folder: &Path) -> Result<Vec<Value>, Failed> {
    let text = std::fs::read_to_string(folder.join("results.jsonl"))?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

fn known_mutants() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let stock = stock("e1000")?;
    let file = |name: &str, bytes: &[u8]| -> Result<String, Failed> {
        let path = folder.path().join(format!("{name}.ko"));
        std::fs::write(&path, bytes)?;
        Ok(path.display().to_string())
    };
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
    let out = out.to_str().ok_or("a path")?;
    let mut arguments = vec!["inject", "e1000", "--kernel", KERNEL, "--run", "-o", out, "--format", "json"];
    for path in [&outside, &refused, &same, &inside, &hang] {
        arguments.extend(["--mutant", path.as_str()]);
    }
    arguments.extend(SHORT);
    let result = guardrail(&arguments);
    let said = || format!("{}\n{}", result.stdout, result.stderr);
    if result.status != 0 {
        return Err(said().into());
    }
    let lines = results(Path::new(out))?;
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
    let file = folder.path().join("frees.ko");
    std::fs::write(&file, redirected(&stock("e1000")?, ".text", "napi_disable", "kfree")?)?;
    let (file, out) = (file.to_str().ok_or("a path")?, folder.path().join("campaign"));
    let out = out.to_str().ok_or("a path")?;
    let mut arguments = vec!["inject", "e1000", "--kernel", KERNEL, "--run", "--guarded=recover", "-o", out];
    arguments.extend(["--mutant", file, "--format", "json"]);
    arguments.extend(SHORT);
    let result = guardrail(&arguments);
    if result.status != 0 {
        return Err(format!("{}\n{}", result.stdout, result.stderr).into());
    }
    let lines = results(Path::new(out))?;
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
    let mut arguments =
        vec!["inject", "vfat", "--kernel", KERNEL, "--workload", "files", "--with", "fat", "--run"];
    arguments.extend([
        "--guarded=fail",
        "--timeout",
        "60",
        "--format",
        "json",
        "-o",
        out.to_str().ok_or("a path")?,
    ]);
    arguments.extend(["--set", "FILES=2", "--set", "DISK_MB=8", "--set", "STRESSORS=", "--set", "OPTIONS="]);
    let mut files = Vec::new();
    for (name, bytes, _) in &mutants {
        let file = folder.path().join(format!("{name}.ko"));
        std::fs::write(&file, bytes)?;
        files.push(file.display().to_string());
    }
    arguments.extend(files.iter().flat_map(|file| ["--mutant", file.as_str()]));
    let result = guardrail(&arguments);
    if result.status != 0 {
        return Err(format!("{}\n{}", result.stdout, result.stderr).into());
    }
    let lines = results(&out)?;
    for (name, _, escapes) in &mutants {
        let of = |way: &str| {
            lines
                .iter()
                .find(|line| line["mutant"] == *name && line["way"] == way)
                .cloned()
                .unwrap_or_default()
        };
        let (plain, guarded) = (of("plain"), of("guarded"));
        assert_eq!((&plain["verdict"] == "escaped", &plain["how"]), (*escapes, &"crash".into()), "{plain:#}");
        assert_eq!(guarded["verdict"], "contained", "{guarded:#}");
    }
    Ok(())
}

fn every_mutant() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().to_str().ok_or("a path")?;
    let kinds = "flip-branch,larger-copy,delete-assignment,missing-lock,early-free";
    let mut arguments = vec!["inject", "e1000", "--kernel", KERNEL, "--kind", kinds, "--count", "1"];
    arguments.extend(["--seed", "3", "--run", "--timeout", "90", "-o", out, "--format", "json"]);
    arguments.extend(SHORT);
    let first = guardrail(&arguments);
    if first.status != 0 {
        return Err(format!("{}\n{}", first.stdout, first.stderr).into());
    }
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
    let again = guardrail(&arguments);
    assert_eq!((again.status, &again.stdout), (0, &first.stdout), "{}", again.stderr);
    assert_eq!(results(folder.path())?, lines);
    // Runs with other settings do not belong to this campaign.
    let other = guardrail(&[&arguments[..], &["--smp", "1"]].concat());
    assert_eq!(other.status, 2, "{}", other.stderr);
    Ok(())
}
