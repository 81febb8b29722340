//! The table `[packages]` of `guardrail.toml`: the mirror and the keyring that packages come from.
//!
//! The environment says the same by variables, which come first, and which all processes of a run inherit. So the table
//! sets the variables that the environment lacks.

use super::{File, env, unknown};
use crate::errors::CliError;
use guardrail_vm::packages::{OWN_KEYRING, OWN_MIRROR};
use std::ffi::OsString;
use toml::Value;

/// The name of the table.
pub(super) const TABLE: &str = "packages";
/// Its keys, and the variables that say the same.
const KEYS: [(&str, &str); 2] = [("mirror", OWN_MIRROR), ("keyring", OWN_KEYRING)];

/// Sets the variables of what the file names and the environment does not.
pub(super) fn apply(file: &File) -> Result<(), CliError> {
    for (variable, value) in settings(file)? {
        if env(variable).is_none() {
            // SAFETY: the program has just begun and has one thread, so that nobody reads the environment meanwhile.
            unsafe { std::env::set_var(variable, value) };
        }
    }
    Ok(())
}

/// What the file sets, by variable. A keyring is named from the file's folder.
fn settings(file: &File) -> Result<Vec<(&'static str, OsString)>, CliError> {
    let table = match file.table.get(TABLE) {
        None => return Ok(Vec::new()),
        Some(Value::Table(table)) => table,
        Some(_) => return Err(file.bad("'packages' has to be a table, as in [packages]")),
    };
    let mut settings = Vec::new();
    for (key, value) in table {
        let known = KEYS.map(|(key, _)| key.to_owned());
        let found = KEYS.iter().find(|(known, _)| known == key);
        let (_, variable) = found.ok_or_else(|| file.bad(&unknown("key of [packages]", key, &known)))?;
        let Some(text) = value.as_str().filter(|text| !text.is_empty()) else {
            return Err(file.bad(&format!("'{key}' of [packages] has to be a string")));
        };
        if !file.named {
            let why = format!(
                "[packages] cannot set '{key}', by which programs are fetched that run here; set {variable}, or name the file in {}",
                super::OTHER
            );
            return Err(file.bad(&why));
        }
        let beside = file.path.parent().map(|folder| folder.join(text));
        let value = if *variable == OWN_KEYRING { beside.map(Into::into) } else { None };
        settings.push((*variable, value.unwrap_or_else(|| text.into())));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(named: bool, text: &str) -> Result<Vec<(&'static str, OsString)>, String> {
        let file = File { path: "/etc/g/f.toml".into(), named, table: text.parse().unwrap() };
        settings(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn only_a_file_that_the_user_names_chooses_the_mirror() {
        let both = "[packages]\nmirror = \"http://m.example/debian\"\nkeyring = \"keys.gpg\"\n";
        let mut found = set(true, both).unwrap();
        found.sort();
        let wanted = [(OWN_KEYRING, "/etc/g/keys.gpg"), (OWN_MIRROR, "http://m.example/debian")];
        assert_eq!(found, wanted.map(|(name, value)| (name, OsString::from(value))));
        let refused = set(false, both).unwrap_err();
        assert!(refused.contains("set GUARDRAIL_KEYRING, or name the file in GUARDRAIL_CONFIG"), "{refused}");
        let absolute = set(true, "[packages]\nkeyring = \"/k.gpg\"\n").unwrap();
        assert_eq!(absolute, [(OWN_KEYRING, OsString::from("/k.gpg"))]);
        assert_eq!(set(true, "[check]\nsmp = 1\n").unwrap(), []);
    }

    #[test]
    fn what_the_table_names_wrongly_is_refused() {
        let said = |text: &str| set(true, text).unwrap_err();
        assert!(said("packages = 1\n").contains("has to be a table"));
        assert!(said("[packages]\nmiror = \"x\"\n").contains("did you mean mirror?"));
        assert!(said("[packages]\nmirror = 1\n").contains("has to be a string"));
        assert!(said("[packages]\nkeyring = \"\"\n").contains("has to be a string"));
    }
}
