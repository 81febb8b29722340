//! The table of steps.

use std::time::Duration;

/// How a step's result is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// The step counts as one.
    One,
    /// Each test that cargo reports counts.
    Tests,
}

/// One command that must succeed.
#[derive(Clone, Debug)]
pub struct Step {
    /// The name that is printed, and by which a developer runs it alone.
    pub name: &'static str,
    /// The words of the command.
    pub command: Vec<String>,
    /// How its result is counted.
    pub counts: Counts,
    /// The number of processors that it keeps busy; zero for a step at idle priority beside all others.
    pub weight: usize,
    /// Steps that must have passed before, by name. Steps that the run leaves out do not count.
    pub after: Vec<&'static str>,
    /// True where it builds what later steps run: it also runs where only those are named.
    pub builds: bool,
    /// The time limit: a step that takes longer is killed and has failed.
    pub limit: Duration,
}

/// A guest for itself, or other work for about one processor.
const LIGHT: usize = 1;
/// Several guests, or a build: enough for two processors.
const HEAVY: usize = 2;
/// At idle priority, beside everything.
const IDLE: usize = 0;

const RELEASE: &str = "release build";
const FUZZ_BUILD: &str = "fuzz targets build";
/// The steps before the release build: a change that fails here is not worth the guests' time.
const QUICK: [&str; 6] =
    ["what building needs is installed", "format", "clippy", "unit tests", "report formats", "structure"];

impl Step {
    fn new(name: &'static str, weight: usize, minutes: u64, command: &str) -> Step {
        Step {
            name,
            command: command.split_whitespace().map(str::to_owned).collect(),
            counts: Counts::One,
            weight,
            after: Vec::new(),
            builds: false,
            limit: Duration::from_secs(minutes * 60),
        }
    }

    /// A run of cargo's tests.
    fn tests(name: &'static str, weight: usize, minutes: u64, arguments: &str) -> Step {
        let step = Step::new(name, weight, minutes, &format!("cargo test --workspace {arguments}"));
        Step { counts: Counts::Tests, ..step }
    }

    /// A suite that runs the release build.
    fn suite(name: &'static str, weight: usize, minutes: u64, test: &str) -> Step {
        Step::tests(name, weight, minutes, &format!("--release {test}")).after(&[RELEASE])
    }

    fn after(self, names: &[&'static str]) -> Step {
        Step { after: [&self.after, names].concat(), ..self }
    }
}

/// The steps before the release build.
fn quick() -> Vec<Step> {
    let [setup, format, clippy, unit, ..] = QUICK;
    vec![
        Step::new(setup, HEAVY, 20, "scripts/setup"),
        Step::new(format, HEAVY, 10, "cargo fmt --all --check").after(&[setup]),
        Step::new(clippy, HEAVY, 60, "cargo clippy --workspace --all-targets -- -D warnings").after(&[setup]),
        Step::tests(unit, HEAVY, 60, "--lib --bins").after(&[setup]),
        Step::tests("report formats", HEAVY, 30, "--test formats").after(&[setup]),
        Step::tests("structure", HEAVY, 30, "--test structure --test zoo_index --test supply")
            .after(&[setup]),
    ]
}

/// The table of all steps. Of several that can start, the first one does. Long steps, and steps that pair well with
/// others, are therefore early.
///
/// A limit is for steps that hang; it leaves time for the downloads of a first run.
pub fn all() -> Vec<Step> {
    let fuzz_seconds = std::env::var("GUARDRAIL_FUZZ_SECONDS").unwrap_or_else(|_| "5".to_owned());
    let mut steps = quick();
    steps.extend([
        // This builds the tests with guests, too, all at once: one after another would leave processors idle.
        // The suites then name them with --workspace: with -p, cargo would build them once more, with fewer
        // features.
        Step {
            builds: true,
            ..Step::new(RELEASE, HEAVY, 90, "cargo build --release --workspace --lib --bins --test *")
                .after(&QUICK)
        },
        Step::suite(
            "command line",
            LIGHT,
            20,
            "--test arguments --test config --test confined --test own --test synthetic",
        ),
        Step::suite("jobs of CI", LIGHT, 20, "--test ci"),
        // A kernel of one's own takes too long to build: of that suite only its list is looked at.
        Step::suite("without network, cache or root", LIGHT, 20, "--test offline --test self_built"),
        Step::suite("web pages", LIGHT, 20, "--test site"),
        Step::suite("protocols", LIGHT, 10, "--test protocol"),
        Step::suite(
            "verification of active drivers",
            LIGHT,
            60,
            "--test verify --test verify_bugs --test verify_cross",
        ),
        Step::suite("verification of stock drivers", LIGHT, 20, "--test verify_ordinary"),
        Step::new(
            "benchmarks of the whole kernel run",
            LIGHT,
            30,
            "bench/run kernel --try --ways null --workload micro",
        )
        .after(&[RELEASE]),
        Step::new(
            "benchmarks run",
            LIGHT,
            30,
            "bench/run gate --try --seconds 1 --tools three --only web,registers",
        )
        .after(&[RELEASE]),
        Step::new(
            "benchmark of guarded drivers runs",
            LIGHT,
            30,
            "bench/run guarded --try --only disk,tcp-send",
        )
        .after(&[RELEASE]),
        Step::new(
            "benchmark of active drivers runs",
            LIGHT,
            20,
            "bench/run active --try --only messages,disk,network",
        )
        .after(&[RELEASE]),
        Step::new("benchmark of checks runs", LIGHT, 20, "bench/run instructions --try").after(&[RELEASE]),
        Step {
            builds: true,
            ..Step::new(FUZZ_BUILD, IDLE, 90, "chrt --idle 0 fuzz/run --build").after(&[RELEASE])
        },
        Step::suite("guests", HEAVY, 40, "--test guests"),
        Step::suite("fresh clone", LIGHT, 60, "--test fresh_clone"),
        Step::suite("gate", LIGHT, 30, "--test gate"),
        Step::suite("fault injection", LIGHT, 30, "--test inject"),
        Step::suite("guarding", LIGHT, 30, "--test guard"),
        Step::suite("certifying", LIGHT, 30, "--test certify"),
        Step::suite("rules derived from kernels", LIGHT, 30, "--test learn"),
        Step::suite("power management of drivers", LIGHT, 10, "--test transact"),
        Step::suite("exams of sanitizers", LIGHT, 20, "--test exams"),
        Step::suite("known bugs", LIGHT, 30, "--test known_bugs"),
        Step::suite("attempts to escape", LIGHT, 30, "--test hostile"),
        Step::suite("wrong arguments", LIGHT, 30, "--test wrong_arguments"),
        Step::suite("kept guests", LIGHT, 20, "--test kept"),
        Step::suite("killed runs and fleets", LIGHT, 40, "--test killed --test fleet"),
        Step::suite("many runs, and floods", HEAVY, 20, "--test load"),
        Step::suite("clients", LIGHT, 30, "--test clients"),
        Step::suite("gate out of process", LIGHT, 20, "--test out_of_process"),
        Step::suite("debugger", LIGHT, 20, "--test debug"),
    ]);
    let heavy = [
        ("whole kernel", "--test whole_kernel"),
        ("containment", "--test containment"),
        ("rewritten drivers", "--test rewrite"),
        ("guarded modules of stock kernels", "--test loads"),
        ("builds have the same bytes", "--test reproducible"),
        ("runtime of guarded modules", "--test runtime"),
        ("instrumentation", "--test instrument"),
        ("guarded drivers", "--test guarded"),
        ("endurance of guarded drivers", "--test endurance"),
        ("recovery of guarded drivers", "--test recover"),
        ("active drivers", "--test active"),
        ("mutants of stock drivers", "--test stock -- --ignored"),
        ("kernel images", "--test kernels --test dma -- --ignored"),
    ];
    steps.extend(heavy.map(|(name, test)| Step::suite(name, HEAVY, 40, test)));
    let fuzz = Step::new("fuzzing", HEAVY, 30, &format!("fuzz/run --seconds {fuzz_seconds}"));
    steps.push(fuzz.after(&[FUZZ_BUILD]));
    steps
}

/// The steps with these names, and the builds that they need; all steps without names.
pub fn choose(steps: Vec<Step>, words: &[String]) -> Result<Vec<Step>, String> {
    if words.is_empty() {
        return Ok(steps);
    }
    let mut chosen: Vec<&str> = Vec::new();
    for word in words {
        let exact = steps.iter().filter(|step| step.name == word);
        let exact: Vec<&str> = exact.map(|step| step.name).collect();
        let part = steps.iter().filter(|step| step.name.contains(word.as_str()));
        let named = if exact.is_empty() { part.map(|step| step.name).collect() } else { exact };
        if named.is_empty() {
            return Err(format!("no step is named '{word}'"));
        }
        chosen.extend(named);
    }
    // A step is listed after those that it needs.
    for step in steps.iter().rev() {
        if chosen.contains(&step.name) {
            let builds = steps.iter().filter(|build| build.builds && step.after.contains(&build.name));
            chosen.extend(builds.map(|build| build.name));
        }
    }
    Ok(steps.into_iter().filter(|step| chosen.contains(&step.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Result<Vec<&'static str>, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(choose(all(), &words)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn the_table_is_in_order() {
        let steps = all();
        for (number, step) in steps.iter().enumerate() {
            assert!(
                !steps[..number].iter().any(|other| other.name == step.name),
                "{} is there twice",
                step.name
            );
            for name in &step.after {
                assert!(steps[..number].iter().any(|other| other.name == *name), "{}: {name}", step.name);
            }
        }
    }

    #[test]
    fn every_suite_is_a_step() {
        let suites = include_str!("../../Cargo.toml").split("[[test]]").skip(1);
        for suite in suites.filter_map(|suite| suite.split('"').nth(1)) {
            let runs = |step: &Step| step.command.windows(2).any(|words| words == ["--test", suite]);
            assert!(all().iter().any(runs), "no step runs {suite}");
        }
    }

    #[test]
    fn a_name_is_exact_or_a_part() {
        assert_eq!(names(&["gate"]).unwrap(), [RELEASE, "gate"]);
        assert_eq!(names(&["gate out"]).unwrap(), [RELEASE, "gate out of process"]);
        assert_eq!(names(&["format", "clippy"]).unwrap(), ["format", "clippy"]);
        assert_eq!(names(&["fuzzing"]).unwrap(), [RELEASE, FUZZ_BUILD, "fuzzing"]);
        assert!(names(&["nothing"]).unwrap_err().contains("'nothing'"));
        assert_eq!(names(&[]).unwrap().len(), all().len());
    }
}
