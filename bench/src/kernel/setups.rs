//! The setups in which a guest is run.

/// A setup of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The name, for `--ways` and as the head of its column.
    pub name: String,
    /// What watches the guest.
    pub watch: Watched,
}

/// What watches a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Nothing: QEMU alone.
    Plain,
    /// A client, with these options of `guardrail profile`.
    Client(&'static [&'static str]),
    /// Any plugin: the value of QEMU's `-plugin`.
    Plugin(String),
}

/// The guest that nothing watches.
const PLAIN: &str = "plain";

/// The clients, all over the whole kernel from its first instruction. `detached` is removed again before
/// anything is timed: where the first step of a load begins.
const CLIENTS: [(&str, &[&str]); 6] = [
    ("detached", &["--client", "null", "--until", "build"]),
    ("null", &["--client", "null"]),
    ("count", &["--client", "count"]),
    ("blocks", &["--client", "blocks"]),
    ("kaddrcheck", &["--client", "kaddrcheck"]),
    ("stackcheck", &["--client", "stackcheck"]),
];

impl std::str::FromStr for Setup {
    type Err = String;

    /// Reads `NAME=FILE[,OPTION=VALUE...]`.
    fn from_str(text: &str) -> Result<Setup, String> {
        match text.split_once('=') {
            Some((name, plugin)) if !name.is_empty() && !plugin.is_empty() && name != PLAIN => {
                Ok(Setup { name: name.to_owned(), watch: Watched::Plugin(plugin.to_owned()) })
            }
            _ => Err("a plugin is given as NAME=FILE, or NAME=FILE,OPTION=VALUE".to_owned()),
        }
    }
}

/// The setups with these names; every client and every plugin where there are none. The first is always the
/// plain guest.
pub fn chosen(plugins: &[Setup], names: &[String]) -> Result<Vec<Setup>, String> {
    let client =
        |(name, options): (&str, _)| Setup { name: name.to_owned(), watch: Watched::Client(options) };
    let known: Vec<Setup> = CLIENTS.map(client).into_iter().chain(plugins.iter().cloned()).collect();
    if let Some(name) =
        names.iter().find(|name| *name != PLAIN && !known.iter().any(|setup| setup.name == **name))
    {
        let known: Vec<&str> = known.iter().map(|setup| setup.name.as_str()).collect();
        return Err(format!("--ways has no '{name}'; there are {PLAIN}, {}", known.join(", ")));
    }
    let mut setups = vec![Setup { name: PLAIN.to_owned(), watch: Watched::Plain }];
    setups.extend(known.into_iter().filter(|setup| names.is_empty() || names.contains(&setup.name)));
    Ok(setups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_guest_is_always_there() {
        let plugins: Vec<Setup> = ["a=/x.so", "b=/y.so,z=1"].map(|text| text.parse().unwrap()).into();
        let names = |words: &[&str]| -> Vec<String> {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            chosen(&plugins, &words).unwrap().into_iter().map(|setup| setup.name).collect()
        };
        assert_eq!(names(&[]).len(), 1 + CLIENTS.len() + 2);
        assert_eq!(names(&["b", "count"]), ["plain", "count", "b"]);
        assert_eq!(names(&["plain"]), ["plain"]);
        assert!(chosen(&plugins, &["c".to_owned()]).unwrap_err().contains("there are plain, detached"));
        assert_eq!(plugins[1].watch, Watched::Plugin("/y.so,z=1".to_owned()));
        assert!("a".parse::<Setup>().is_err() && "plain=/x.so".parse::<Setup>().is_err());
    }
}
