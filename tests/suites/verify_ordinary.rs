//! Stock drivers of Linux: the verifier reads all of their code, and finds faults that are seeded into them.
//!
//! `tests/fixtures/active/stock` has the seeds, with a table of what is wrong and whether it is found. The source comes
//! from the distribution's package; a first run fetches it.

use guardrail_tests::{ensure, program, root, verified_kernel};
use guardrail_verify::front::{Headers, Sources};
use guardrail_verify::ir::census::Census;
use guardrail_verify::ir::parse;
use guardrail_verify::stock::{self, Driver};
use guardrail_vm::packages::Packages;
use guardrail_vm::{Cache, kernels};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Seconds for one driver.
const SECONDS: &str = "60";
/// The drivers that are read. An ordinary run takes the first two.
const DRIVERS: [&str; 27] = [
    "8139cp",
    "sata_sil",
    "8139too",
    "e100",
    "e1000",
    "e1000e",
    "pcnet32",
    "ne2k-pci",
    "via-rhine",
    "via-velocity",
    "r8169",
    "tulip",
    "sundance",
    "sis900",
    "natsemi",
    "epic100",
    "starfire",
    "3c59x",
    "b44",
    "tg3",
    "igb",
    "virtio_net",
    "ahci",
    "ata_piix",
    "sym53c8xx",
    "megaraid",
    "dc395x",
];
/// What the parser may leave as any value. Each is a value of the device or the kernel, or has no use for control.
const LEFT: [&str; 3] = [
    "a jump that assembly or a computed label decides, of which each target is followed",
    "a number of more than 64 bits",
    "assembly outside functions is taken to send and receive nothing",
];
/// The seeds of an ordinary run.
const SAMPLE: [&str; 2] =
    ["09-via-rhine-open-failure-leaves-irq.patch", "10-via-rhine-remove-leaves-device-enabled.patch"];

/// A line of the table of seeds.
#[derive(Clone)]
struct Seed {
    patch: String,
    driver: String,
    /// A report names one of these.
    names: Vec<String>,
}

/// Seeds that are not found today; [the results](../../docs/results/ordinary-drivers.md) say why.
const MISSED: [&str; 1] = ["16-sundance-registered-before-enabled.patch"];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (at, driver) in DRIVERS.into_iter().enumerate() {
        let trial = Trial::test(format!("{driver} is read without loss"), move || read(driver));
        trials.push(trial.with_ignored_flag(at >= 2));
    }
    trials.push(Trial::test("the client begins the callbacks of a bus beside PCI", other_bus));
    match seeds() {
        Err(why) => trials.push(Trial::test("the table of seeds", move || Err(why))),
        Ok(seeds) => {
            let all = seeds.clone();
            trials.push(Trial::test("table and patches of seeds agree", move || agree(&all)));
            for seed in seeds {
                let left_out = !SAMPLE.contains(&&*seed.patch);
                let name =
                    format!("{} is found or missed as expected", seed.patch.trim_end_matches(".patch"));
                trials.push(Trial::test(name, move || judged(&seed)).with_ignored_flag(left_out));
            }
        }
    }
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

fn folder() -> PathBuf {
    root().join("tests/fixtures/active/stock")
}

fn seeds() -> Result<Vec<Seed>, Failed> {
    let text = std::fs::read_to_string(folder().join("seeds.txt"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(" | ").map(str::trim).collect();
            let [patch, driver, names, _, _] = fields[..] else {
                return Err(format!("'{line}' has {} fields", fields.len()).into());
            };
            let names = names.split_whitespace().map(str::to_owned).collect();
            Ok(Seed { patch: patch.to_owned(), driver: driver.to_owned(), names })
        })
        .collect()
}

/// b44 is a driver of the bus ssb. Without its callbacks nothing of it would run, and all would be proved.
fn other_bus() -> Result<(), Failed> {
    let ran = Command::new(program()).args(["verify", "--stock", "b44", "--timeout", SECONDS]).output()?;
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    ensure(text.contains("released-twice in b44_close"), || text)
}

/// Source and headers of the kernel.
fn trees() -> Result<(PathBuf, PathBuf), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let kernel = kernels::find(&packages, &verified_kernel())?;
    Ok((kernels::source(&packages, &kernel)?, kernels::headers_tree(&packages, &kernel)?))
}

/// What is in a driver's files and was not understood, and the seconds that clang and the parser took.
fn count(driver: &Driver, headers: &Path, tree: &Path) -> Result<(Census, [f64; 2]), Failed> {
    let (mut census, mut seconds) = (Census::default(), [0.0, 0.0]);
    for file in &driver.files {
        let began = Instant::now();
        let sources = Sources {
            files: vec![file.clone()],
            folders: driver.folders.clone(),
            definitions: driver.definitions.clone(),
            headers: Headers::Kernel(headers.to_owned()),
            tree: Some(tree.to_owned()),
        };
        let text = sources.translate(&|| false)?.concat();
        seconds[0] += began.elapsed().as_secs_f64();
        let began = Instant::now();
        let module = parse::module(&file.display().to_string(), &text)?;
        seconds[1] += began.elapsed().as_secs_f64();
        census.add(&Census::new(&module));
    }
    Ok((census, seconds))
}

fn read(name: &str) -> Result<(), Failed> {
    let (source, headers) = trees()?;
    let driver = stock::find(&source, &stock::options(&headers), name)?;
    let lines = driver.files.iter().map(|file| std::fs::read_to_string(file).unwrap_or_default());
    let lines: usize = lines.map(|text| text.lines().count()).sum();
    let (census, [clang, parser]) = count(&driver, &headers, &source)?;
    println!(
        "{name}: {} files, {lines} lines, {} functions, {} instructions, clang {clang:.1} s, parser {parser:.2} s, {:?}",
        driver.files.len(),
        census.functions,
        census.instructions,
        census.unknown
    );
    ensure(census.functions >= 20 && census.instructions >= 1000, || format!("{name}: {census:?}"))?;
    let lost = census.unknown.keys().find(|what| !LEFT.contains(&&***what));
    ensure(lost.is_none(), || format!("{name} has what is not understood: {lost:?}"))
}

/// A copy of the driver's folder with a seed.
fn patched(seed: &Seed, source: &Path, headers: &Path) -> Result<(tempfile::TempDir, Driver), Failed> {
    let mut driver = stock::find(source, &stock::options(headers), &seed.driver)?;
    let copy = tempfile::tempdir()?;
    let from = driver.files[0].parent().ok_or("a file without a folder")?.to_owned();
    let to = copy.path().join(from.strip_prefix(source)?);
    std::fs::create_dir_all(&to)?;
    for entry in std::fs::read_dir(&from)?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "c" || ending == "h") {
            std::fs::copy(&path, to.join(entry.file_name()))?;
        }
    }
    let patch = std::fs::File::open(folder().join(&seed.patch))?;
    let mut command = Command::new("patch");
    let command = command.args(["-p1", "-s", "-F0", "-d"]).arg(copy.path()).stdin(Stdio::from(patch));
    let output = command.output()?;
    ensure(output.status.success(), || {
        format!("{} does not apply: {}", seed.patch, String::from_utf8_lossy(&output.stdout))
    })?;
    for file in &mut driver.files {
        *file = copy.path().join(file.strip_prefix(source)?);
    }
    Ok((copy, driver))
}

/// Each seed has a patch that applies, each patch a line, and there are at least ten in at least four drivers.
fn agree(seeds: &[Seed]) -> Result<(), Failed> {
    let (source, headers) = trees()?;
    let mut listed: Vec<String> = seeds.iter().map(|seed| seed.patch.clone()).collect();
    let entries = std::fs::read_dir(folder())?.flatten();
    let there = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut there: Vec<String> = there.filter(|name| name.ends_with(".patch")).collect();
    listed.sort();
    there.sort();
    ensure(listed == there, || format!("{listed:?} are listed, {there:?} are there"))?;
    let mut drivers: Vec<&String> = seeds.iter().map(|seed| &seed.driver).collect();
    drivers.sort();
    drivers.dedup();
    ensure(seeds.len() >= 10 && drivers.len() >= 4, || "there are too few seeds".to_owned())?;
    for sample in SAMPLE {
        ensure(listed.iter().any(|patch| patch == sample), || format!("{sample} is not listed"))?;
    }
    for seed in seeds {
        patched(seed, &source, &headers)?;
    }
    Ok(())
}

/// What the program reports, without paths and lines: for a stock driver, or for files.
fn reports(stock: Option<&str>, files: &[PathBuf]) -> Result<Vec<String>, Failed> {
    let mut command = Command::new(program());
    command.args(["verify", "--format", "json", "--kernel", &verified_kernel(), "--timeout", SECONDS]);
    command.args(stock.iter().flat_map(|name| ["--stock", name])).args(files);
    let output = command.output()?;
    ensure(matches!(output.status.code(), Some(0 | 1 | 5)), || {
        format!("{stock:?} {files:?}: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let findings = report["findings"].as_array().ok_or("the report has no findings")?;
    let text = |one: &serde_json::Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let line =
        |one| plain(&format!("{} {} in {}", text(one, "kind"), text(one, "message"), text(one, "function")));
    Ok(findings.iter().map(line).collect())
}

/// A report without what changes with the place of the file, and with lines that a seed moves.
fn plain(report: &str) -> String {
    let words = report.split(' ').map(|word| if word.contains(".c:") { "FILE" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// What is reported with the seed and not without it.
fn judged(seed: &Seed) -> Result<(), Failed> {
    let (source, headers) = trees()?;
    let before = reports(Some(&seed.driver), &[])?;
    let (_copy, driver) = patched(seed, &source, &headers)?;
    let mut new = reports(None, &driver.files)?;
    for one in &before {
        if let Some(at) = new.iter().position(|other| other == one) {
            new.remove(at);
        }
    }
    println!("{}: {new:#?}", seed.patch);
    let named = |one: &String| seed.names.iter().any(|name| one.contains(name.as_str()));
    let missed = MISSED.contains(&&*seed.patch);
    ensure(new.iter().any(named) != missed, || format!("{:?}: expected the opposite of {new:#?}", seed.names))
}
