//! Stacks as a profile in the processed format of profiler.firefox.com, one track for each vCPU.
//!
//! Version 49 of the format, which later versions of the profiler upgrade when they load it.

use super::stacks::{Frame, Stack};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::hash::Hash;

/// The version of the profiler's format.
const VERSION: u32 = 49;
/// Indices in the list of categories.
const KERNEL: usize = 1;
const MODULE: usize = 2;
/// The profiler's number for a library, as a kind of resource.
const LIBRARY: u32 = 1;
/// The name for code that belongs to no module.
const IMAGE: &str = "vmlinux";

/// The profile as a JSON value.
pub fn firefox(product: &str, stacks: &[Stack]) -> Value {
    let mut cpus: Vec<u64> = stacks.iter().map(|stack| stack.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let threads: Vec<Value> = cpus.iter().map(|&cpu| Thread::of(cpu, stacks).json(cpu)).collect();
    json!({
        "meta": {
            "categories": [
                { "name": "Other", "color": "grey", "subcategories": ["Other"] },
                { "name": "Kernel", "color": "orange", "subcategories": ["Other"] },
                { "name": "Module", "color": "blue", "subcategories": ["Other"] },
            ],
            "debug": false,
            "extensions": { "length": 0, "baseURL": [], "id": [], "name": [] },
            "interval": 1.0,
            "markerSchema": [],
            "preprocessedProfileVersion": VERSION,
            "processType": 0,
            "product": product,
            "sampleUnits": { "eventDelay": "ms", "threadCPUDelta": "µs", "time": "ms" },
            "startTime": 0,
            "symbolicated": true,
            "pausedRanges": [],
            "version": 24,
            "usesOnlyOneStackType": true,
            "doesNotUseFrameImplementation": true,
            "sourceCodeIsNotOnSearchfox": true,
        },
        "libs": [], "threads": threads, "pages": [], "profilerOverhead": [], "counters": [],
    })
}

/// Distinct rows with their numbers.
struct Rows<T> {
    rows: Vec<T>,
    numbers: HashMap<T, usize>,
}

impl<T: Clone + Eq + Hash> Rows<T> {
    fn new() -> Rows<T> {
        Rows { rows: Vec::new(), numbers: HashMap::new() }
    }

    fn number(&mut self, row: T) -> usize {
        *self.numbers.entry(row).or_insert_with_key(|row| {
            self.rows.push(row.clone());
            self.rows.len() - 1
        })
    }

    /// A column of the table.
    fn column<U>(&self, cell: impl Fn(&T) -> U) -> Vec<U> {
        self.rows.iter().map(cell).collect()
    }
}

/// A function: the numbers of its name and resource. Where it is known, the number of its file's name and its
/// first line follow.
type Function = (usize, usize, Option<(usize, u32)>);

/// The stacks of one vCPU, in the tables of the format.
struct Thread {
    strings: Rows<String>,
    /// Modules, by the numbers of their names.
    resources: Rows<usize>,
    functions: Rows<Function>,
    /// Numbers of functions, and lines within them.
    frames: Rows<(usize, Option<u32>)>,
    /// Numbers of the caller's stack and of the stack frame.
    stacks: Rows<(Option<usize>, usize)>,
    /// Times in microseconds, and numbers of stacks.
    samples: Vec<(u64, usize)>,
    image: usize,
}

impl Thread {
    fn of(cpu: u64, stacks: &[Stack]) -> Thread {
        let mut strings = Rows::new();
        let image = strings.number(IMAGE.to_owned());
        let (resources, functions, frames) = (Rows::new(), Rows::new(), Rows::new());
        let mut thread =
            Thread { strings, resources, functions, frames, stacks: Rows::new(), samples: Vec::new(), image };
        for stack in stacks.iter().filter(|stack| stack.cpu == cpu) {
            let mut innermost = None;
            for frame in &stack.frames {
                let frame = thread.frame(frame);
                innermost = Some(thread.stacks.number((innermost, frame)));
            }
            let times = stack.times.iter().copied();
            thread
                .samples
                .extend(innermost.into_iter().flat_map(|stack| times.clone().map(move |time| (time, stack))));
        }
        thread.samples.sort_unstable();
        thread
    }

    fn frame(&mut self, frame: &Frame) -> usize {
        let name = self.strings.number(frame.function.clone());
        let module = self.strings.number(frame.module.clone().unwrap_or_else(|| IMAGE.to_owned()));
        let resource = self.resources.number(module);
        let begin = frame.begin.as_ref().map(|(file, line)| (self.strings.number(file.clone()), *line));
        let function = self.functions.number((name, resource, begin));
        // The format has one file for a function. A line of a function that was inlined from another file
        // cannot be expressed.
        let file = frame.begin.as_ref().map(|begin| &begin.0);
        let line = frame.line.as_ref().filter(|line| Some(&line.0) == file).map(|line| line.1);
        self.frames.number((function, line))
    }

    fn json(&self, cpu: u64) -> Value {
        json!({
            "name": format!("CPU {cpu}"), "isMainThread": true, "processType": "default", "processName": "kernel",
            "processStartupTime": 0, "processShutdownTime": null, "registerTime": 0, "unregisterTime": null,
            "pausedRanges": [], "pid": cpu.to_string(), "tid": cpu.to_string(),
            "frameTable": self.frame_table(),
            "funcTable": self.function_table(),
            "markers": {
                "length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": [],
            },
            "nativeSymbols": { "length": 0, "address": [], "functionSize": [], "libIndex": [], "name": [] },
            "resourceTable": {
                "length": self.resources.rows.len(), "name": self.resources.rows,
                "lib": self.resources.column(|_| Value::Null), "host": self.resources.column(|_| Value::Null),
                "type": self.resources.column(|_| LIBRARY),
            },
            "samples": {
                "length": self.samples.len(), "weightType": "samples", "weight": null,
                "stack": self.samples.iter().map(|sample| sample.1).collect::<Vec<_>>(),
                "time": self.samples.iter().map(|sample| sample.0 as f64 / 1000.0).collect::<Vec<_>>(),
            },
            "stackTable": {
                "length": self.stacks.rows.len(),
                "prefix": self.stacks.column(|stack| stack.0),
                "frame": self.stacks.column(|stack| stack.1),
                "category": self.stacks.column(|stack| self.category(stack.1)),
                "subcategory": self.stacks.column(|_| 0),
            },
            "stringArray": self.strings.rows,
        })
    }

    fn frame_table(&self) -> Value {
        let absent = self.frames.column(|_| Value::Null);
        let categories: Vec<usize> = (0..self.frames.rows.len()).map(|frame| self.category(frame)).collect();
        json!({
            "length": self.frames.rows.len(), "address": self.frames.column(|_| -1),
            "inlineDepth": self.frames.column(|_| 0), "category": categories,
            "subcategory": self.frames.column(|_| 0), "func": self.frames.column(|frame| frame.0),
            "nativeSymbol": absent, "innerWindowID": absent, "implementation": absent,
            "line": self.frames.column(|frame| frame.1), "column": absent, "optimizations": absent,
        })
    }

    fn function_table(&self) -> Value {
        json!({
            "length": self.functions.rows.len(), "name": self.functions.column(|function| function.0),
            "isJS": self.functions.column(|_| false), "relevantForJS": self.functions.column(|_| false),
            "resource": self.functions.column(|function| function.1),
            "fileName": self.functions.column(|function| function.2.map(|begin| begin.0)),
            "lineNumber": self.functions.column(|function| function.2.map(|begin| begin.1)),
            "columnNumber": self.functions.column(|_| Value::Null),
        })
    }

    /// The category of a stack frame, by the frame's number.
    fn category(&self, frame: usize) -> usize {
        let resource = self.functions.rows[self.frames.rows[frame].0].1;
        if self.resources.rows[resource] == self.image { KERNEL } else { MODULE }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stacks::samples;
    use super::*;

    #[test]
    fn a_track_for_each_cpu() {
        insta::assert_json_snapshot!(firefox("kernel", &samples()));
    }

    #[test]
    fn functions_have_modules_files_and_lines() {
        let profile = firefox("kernel", &samples());
        let thread = &profile["threads"][1];
        let text =
            |number: &Value| thread["stringArray"][number.as_u64().unwrap() as usize].as_str().unwrap();
        let functions = &thread["funcTable"];
        let names: Vec<&str> = functions["name"].as_array().unwrap().iter().map(text).collect();
        let at = names.iter().position(|name| *name == "e1000_<a&b>").unwrap();
        assert_eq!(text(&functions["fileName"][at]), "e1000/main.c");
        assert_eq!(functions["lineNumber"][at], 100);
        let resource = functions["resource"][at].as_u64().unwrap() as usize;
        assert_eq!(text(&thread["resourceTable"]["name"][resource]), "e1000");
        // Two lines of one function are two stack frames.
        let frames = &thread["frameTable"];
        let lines: Vec<&Value> = (0..frames["length"].as_u64().unwrap() as usize)
            .filter(|&frame| frames["func"][frame] == at)
            .map(|frame| &frames["line"][frame])
            .collect();
        assert_eq!(lines, [117, 119]);
    }

    #[test]
    fn lines_of_other_files_are_left_out() {
        let mut stacks = samples();
        for frame in stacks.iter_mut().flat_map(|stack| &mut stack.frames) {
            frame.line = frame.line.as_ref().map(|line| ("include/linux/list.h".to_owned(), line.1));
        }
        let lines = firefox("kernel", &stacks)["threads"][1]["frameTable"]["line"].clone();
        assert!(lines.as_array().unwrap().iter().all(Value::is_null));
    }
}
