//! Stacks with names, and as folded lines for other tools.

use std::collections::BTreeMap;

/// A stack that was sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The functions, the outermost first.
    pub frames: Vec<Frame>,
    /// The number of samples with this stack.
    pub samples: u64,
    /// The vCPU that it was sampled on.
    pub cpu: u64,
    /// The times of the samples, in microseconds since the client began; there may be fewer times than
    /// samples.
    pub times: Vec<u64>,
}

/// A function on a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The function's name, as the symbol table has it.
    pub function: String,
    /// The function's module; `None` for the kernel's image.
    pub module: Option<String>,
    /// File and line of the instruction or call, where debug information has them.
    pub line: Option<(String, u32)>,
    /// File and line where the function begins, where debug information has them.
    pub begin: Option<(String, u32)>,
}

impl Frame {
    /// The function's name with its module.
    pub fn name(&self) -> String {
        match &self.module {
            None => self.function.clone(),
            Some(module) => format!("{} [{module}]", self.function),
        }
    }
}

/// Sorted `outer;inner COUNT` lines, the input of flame graph tools.
pub fn folded(stacks: &[Stack]) -> String {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for stack in stacks {
        let names: Vec<String> = stack.frames.iter().map(|frame| frame.name().replace(';', ":")).collect();
        *sums.entry(names.join(";")).or_default() += stack.samples;
    }
    sums.iter().fold(String::new(), |text, (stack, count)| text + &format!("{stack} {count}\n"))
}

/// Stacks for the tests of charts.
#[cfg(test)]
pub(super) fn samples() -> Vec<Stack> {
    let frame = |name: &str| match name.split_once('@') {
        None => Frame { function: name.to_owned(), ..Frame::default() },
        Some((function, line)) => Frame {
            function: function.to_owned(),
            module: Some("e1000".to_owned()),
            line: line.parse().ok().map(|line| ("e1000/main.c".to_owned(), line)),
            begin: Some(("e1000/main.c".to_owned(), 100)),
        },
    };
    let stack = |names: &str, samples, cpu, times: &[u64]| Stack {
        frames: names.split(' ').map(frame).collect(),
        samples,
        cpu,
        times: times.to_vec(),
    };
    vec![
        stack("do_syscall_64 ksys_read vfs_read", 3, 0, &[100, 2000, 7000]),
        stack("do_syscall_64 ksys_read", 1, 1, &[5]),
        stack("do_syscall_64 e1000_<a&b>@117", 2, 1, &[300, 250]),
        stack("do_syscall_64 e1000_<a&b>@119", 1, 1, &[400]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_stacks_are_sums() {
        insta::assert_snapshot!(folded(&samples()), @r"
        do_syscall_64;e1000_<a&b> [e1000] 3
        do_syscall_64;ksys_read 1
        do_syscall_64;ksys_read;vfs_read 3
        ");
    }
}
