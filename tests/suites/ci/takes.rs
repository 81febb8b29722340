//! What servers ask for beyond the schemas of their formats, and what their recipes need.

use super::recipes::items;
use serde_json::Value;

/// GitHub's limits of a file of SARIF: runs in a file, results and rules in a run, locations of a result, letters of a text.
const RUNS: usize = 20;
const RESULTS: usize = 25_000;
const LOCATIONS: usize = 1000;
const LETTERS: usize = 1024;
/// The severities of Code Quality.
const SEVERITIES: [&str; 5] = ["info", "minor", "major", "critical", "blocker"];

/// What is found wrong, a line each.
struct Wrong(Vec<String>);

impl Wrong {
    fn unless(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }
}

/// A text with something in it that is no control character, but for ends of lines.
fn says(value: &Value) -> bool {
    value.as_str().is_some_and(|text| {
        !text.trim().is_empty() && !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t')
    })
}

/// What GitHub or GitLab would not take of SARIF.
pub fn sarif(log: &Value) -> Vec<String> {
    let mut wrong = Wrong(Vec::new());
    let runs = items(&log["runs"]);
    wrong.unless((1..=RUNS).contains(&runs.len()), || format!("{} runs", runs.len()));
    for run in runs {
        let (rules, results) = (items(&run["tool"]["driver"]["rules"]), items(&run["results"]));
        wrong.unless(rules.len() <= RESULTS && results.len() <= RESULTS, || {
            "too many rules or results".into()
        });
        wrong.unless(says(&run["automationDetails"]["id"]), || "no category".into());
        for rule in rules {
            for text in ["shortDescription", "fullDescription", "help"] {
                let text = &rule[text]["text"];
                let fits = text.as_str().is_some_and(|text| text.chars().count() <= LETTERS);
                wrong.unless(says(text) && fits, || format!("a text of rule {}", rule["id"]));
            }
        }
        for result in results {
            let at = |what: &str| format!("{what} of {result:#}");
            let number = result["ruleIndex"].as_u64().map(|number| number as usize);
            let rule = number.and_then(|number| rules.get(number));
            wrong.unless(rule.is_some_and(|rule| rule["id"] == result["ruleId"]), || at("the rule"));
            wrong.unless(says(&result["message"]["text"]), || at("the message"));
            let text = result["message"]["text"].as_str().unwrap_or_default();
            wrong.unless(!text.contains("](") && !text.contains("{0"), || {
                at("a link or a place for an argument")
            });
            wrong.unless((1..=LOCATIONS).contains(&items(&result["locations"]).len()), || {
                at("the number of locations")
            });
            let place = &result["locations"][0]["physicalLocation"];
            let uri = place["artifactLocation"]["uri"].as_str().unwrap_or_default();
            wrong.unless(!uri.is_empty() && !uri.starts_with('/'), || at("the file"));
            wrong.unless(place["region"]["startLine"].as_u64() >= Some(1), || at("the line"));
            wrong.unless(result["partialFingerprints"]["primaryLocationLineHash"].is_string(), || {
                at("the fingerprint")
            });
        }
    }
    wrong.0
}

/// What GitLab would not take of Code Quality.
pub fn code_quality(issues: &Value) -> Vec<String> {
    let mut wrong = Wrong(Vec::new());
    wrong.unless(issues.is_array(), || "it is no list".into());
    for issue in items(issues) {
        let at = |what: &str| format!("{what} of {issue:#}");
        for name in ["description", "check_name", "fingerprint"] {
            wrong.unless(says(&issue[name]), || at(name));
        }
        wrong.unless(SEVERITIES.iter().any(|severity| issue["severity"] == *severity), || at("the severity"));
        let path = issue["location"]["path"].as_str().unwrap_or_default();
        wrong.unless(!path.is_empty() && !path.starts_with("./"), || at("the path"));
        wrong.unless(issue["location"]["lines"]["begin"].as_u64() >= Some(1), || at("the line"));
    }
    wrong.0
}

/// What a workflow of GitHub lacks.
pub fn workflow(workflow: &Value) -> Vec<String> {
    let mut wrong = Wrong(Vec::new());
    wrong.unless(workflow["on"].is_object() && says(&workflow["name"]), || "name and events".into());
    let jobs: Vec<&Value> = workflow["jobs"].as_object().into_iter().flatten().map(|(_, job)| job).collect();
    wrong.unless(!jobs.is_empty(), || "no job".into());
    for job in jobs {
        wrong.unless(says(&job["runs-on"]) && !items(&job["steps"]).is_empty(), || {
            "a job without steps".into()
        });
        for step in items(&job["steps"]) {
            let (uses, run) = (step["uses"].as_str(), step["run"].as_str());
            wrong.unless(uses.is_some() != run.is_some(), || {
                format!("neither or both of uses and run: {step}")
            });
            wrong.unless(uses.is_none_or(|action| action.contains('@')), || format!("no version: {step}"));
            // Text of others, such as a title, must not become a command.
            wrong.unless(run.is_none_or(|commands| !commands.contains("${{")), || {
                format!("an expression: {step}")
            });
            let uploads = uses.is_some_and(|action| action.contains("upload-sarif"));
            let may = workflow["permissions"]["security-events"] == "write";
            wrong.unless(!uploads || may && step["with"]["sarif_file"].is_string(), || "upload-sarif".into());
        }
    }
    wrong.0
}

/// What a job of GitLab lacks.
pub fn pipeline(job: &Value) -> Vec<String> {
    let mut wrong = Wrong(Vec::new());
    let script = items(&job["script"]);
    wrong.unless(says(&job["image"]) && !script.is_empty(), || "image and script".into());
    wrong.unless(script.iter().all(says), || "a line of the script that is no text".into());
    wrong.unless(job["artifacts"]["when"] == "always", || "a job that fails must keep its reports".into());
    let reports = job["artifacts"]["reports"].as_object();
    let known = |name: &String| ["junit", "codequality"].contains(&name.as_str());
    wrong.unless(reports.is_some_and(|all| all.len() == 2 && all.keys().all(known)), || "reports".into());
    // Only what is below the folder of the project can be in its cache.
    let paths = items(&job["cache"]["paths"]);
    let inside = |path: &Value| path.as_str().is_some_and(|path| !path.starts_with('/'));
    wrong.unless(!paths.is_empty() && paths.iter().all(inside), || "cache".into());
    wrong.0
}

/// What a job of LAVA lacks.
pub fn lab_job(job: &Value) -> Vec<String> {
    let mut wrong = Wrong(Vec::new());
    for name in ["job_name", "device_type", "visibility", "priority"] {
        wrong.unless(says(&job[name]), || name.into());
    }
    wrong.unless(job["timeouts"]["job"]["minutes"].is_string(), || "timeouts".into());
    let names: Vec<&String> =
        items(&job["actions"]).iter().filter_map(Value::as_object).flat_map(|action| action.keys()).collect();
    wrong.unless(names == ["deploy", "boot", "test"], || format!("actions {names:?}"));
    for definition in items(&job["actions"][2]["test"]["definitions"]) {
        let about = &definition["repository"];
        let right = definition["from"] == "inline"
            && says(&definition["name"])
            && says(&definition["path"])
            && about["metadata"]["format"] == "Lava-Test Test Definition 1.0"
            && items(&about["run"]["steps"]).iter().all(says);
        wrong.unless(right, || format!("definition {definition:#}"));
    }
    wrong.0
}
