//! The list of calls that do harm still.

use crate::verdict::Verdict;
use libtest_mimic::Failed;

const LIST: &str = include_str!("../../fixtures/wrong/open.txt");

/// Calls of a function that are known to do harm.
struct Known {
    function: String,
    /// Their arguments, counted from 1; empty for all.
    arguments: Vec<usize>,
    /// How these are wrong; empty for all ways.
    ways: Vec<String>,
    /// The kernels where they do harm; empty for all.
    kernels: Vec<String>,
}

impl Known {
    fn has(&self, verdict: &Verdict) -> bool {
        let fits = |list: &[String], word: &str| list.is_empty() || list.iter().any(|one| one == word);
        self.function == verdict.function
            && (self.arguments.is_empty() || self.arguments.contains(&verdict.argument))
            && fits(&self.ways, verdict.wrongness)
            && fits(&self.kernels, &verdict.kernel)
    }
}

/// Calls that are known to do harm, as the file lists them.
pub struct Open(Vec<Known>);

impl Open {
    /// Reads `FUNCTION… [ARGUMENT…] [WRONGNESS…] [on KERNEL…]: REASON` from each line.
    pub fn read() -> Result<Open, Failed> {
        let mut all = Vec::new();
        for line in LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (head, _) = line.split_once(": ").ok_or_else(|| format!("'{line}' has no reason"))?;
            let (head, kernels) = head.split_once(" on ").unwrap_or((head, ""));
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let (mut functions, mut arguments, mut ways) = (Vec::new(), Vec::new(), Vec::new());
            for word in words(head) {
                match word.parse::<usize>() {
                    Ok(number) => arguments.push(number),
                    Err(_) if crate::functions::is_wrongness(&word) => ways.push(word),
                    Err(_) => functions.push(word),
                }
            }
            all.extend(functions.into_iter().map(|function| Known {
                function,
                arguments: arguments.clone(),
                ways: ways.clone(),
                kernels: words(kernels),
            }));
        }
        Ok(Open(all))
    }

    /// Whether a call is listed.
    pub fn has(&self, verdict: &Verdict) -> bool {
        self.0.iter().any(|known| known.has(verdict))
    }

    /// Whether any call of a function is listed: a short run does not make them, since each may cost a guest.
    pub fn ends_guests(&self, function: &str) -> bool {
        self.0.iter().any(|known| known.function == function)
    }

    /// Functions in the list of which no call did harm.
    pub fn unmet<'a>(&'a self, verdicts: &'a [Verdict]) -> impl Iterator<Item = &'a str> {
        let met = |known: &Known| verdicts.iter().any(|verdict| verdict.is_harmful() && known.has(verdict));
        self.0.iter().filter(move |known| !met(known)).map(|known| known.function.as_str())
    }
}
