//! The values that a program writes to memory.

use super::cursor::{Cursor, Result};
use super::{Form, MEMORY};

/// The most bytes of a value.
const MOST: usize = MEMORY as usize;

/// Takes data in quotes, with its size behind a slash where the text gives one.
pub(super) fn data(cursor: &mut Cursor<'_>) -> Result<Vec<u8>> {
    let start = *cursor;
    let mut bytes = if cursor.takes("\"") { hexadecimal(cursor)? } else { readable(cursor)? };
    if cursor.takes("/") {
        let place = *cursor;
        let size = usize::try_from(cursor.number()?).unwrap_or(usize::MAX);
        if size > MOST {
            return Err(place.wrong(format!("data may have {} MiB", MOST >> 20)));
        }
        if size < bytes.len() {
            return Err(
                start.wrong(format!("the data has {} bytes, which is more than its size", bytes.len()))
            );
        }
        bytes.resize(size, 0);
    }
    Ok(bytes)
}

/// Takes what is between quotes after the first of them, as hexadecimal digits.
fn hexadecimal(cursor: &mut Cursor<'_>) -> Result<Vec<u8>> {
    let start = *cursor;
    let digits = cursor.until('"')?;
    if digits.starts_with('$') {
        return Err(start.wrong("compressed data is not understood; write its bytes in hexadecimal"));
    }
    let digit = |c: char| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Option<Vec<u8>> = digits.chars().map(digit).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => {
            Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        _ => Err(start.wrong("data between double quotes has two hexadecimal digits a byte")),
    }
}

/// Takes text between single quotes.
fn readable(cursor: &mut Cursor<'_>) -> Result<Vec<u8>> {
    cursor.take("'")?;
    let mut bytes = Vec::new();
    let start = *cursor;
    // Quotes and backslashes in it are behind backslashes.
    let mut rest = cursor.until('\'')?.to_owned();
    while ends_escaped(&rest) {
        rest.push('\'');
        rest.push_str(cursor.until('\'')?);
    }
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        if !matches!(character, ' '..='~') {
            return Err(start.wrong("text between single quotes is ASCII; other bytes are written as \\x00"));
        }
        if character != '\\' {
            bytes.push(character as u8);
            continue;
        }
        let escaped = match characters.next() {
            Some('a') => Some(7),
            Some('b') => Some(8),
            Some('t') => Some(b'\t'),
            Some('n') => Some(b'\n'),
            Some('v') => Some(11),
            Some('f') => Some(12),
            Some('r') => Some(b'\r'),
            Some('x') => {
                let digits: String = characters.by_ref().take(2).collect();
                Some(digits)
                    .filter(|digits| digits.len() == 2)
                    .and_then(|digits| u8::from_str_radix(&digits, 16).ok())
            }
            Some(plain @ ('\\' | '\'' | '"')) => Some(plain as u8),
            _ => None,
        };
        bytes.push(
            escaped
                .ok_or_else(|| start.wrong("a backslash is followed by one of a b t n v f r \\ ' \" xNN"))?,
        );
    }
    Ok(bytes)
}

/// True where an odd number of backslashes is at the end.
fn ends_escaped(text: &str) -> bool {
    (text.len() - text.trim_end_matches('\\').len()) % 2 == 1
}

/// The form in which a member of syzkaller's ANY has the result of a call; `None` for another member.
pub(super) fn form(name: &str) -> Option<Form> {
    Some(match name {
        "ANYRES16" => Form::Bytes(2),
        "ANYRES32" => Form::Bytes(4),
        "ANYRES64" => Form::Bytes(8),
        "ANYRESDEC" => Form::Decimal,
        "ANYRESHEX" => Form::Hexadecimal,
        "ANYRESOCT" => Form::Octal,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> std::result::Result<Vec<u8>, String> {
        data(&mut Cursor::new(text, 1)).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn data_is_hexadecimal_or_readable() {
        assert_eq!(read("\"01fF\""), Ok(vec![1, 255]));
        assert_eq!(read("'/dev/x\\x00\\n\\'\\\\'"), Ok(b"/dev/x\0\n'\\".to_vec()));
        assert_eq!(read("\"\"/3"), Ok(vec![0; 3]));
        assert_eq!(read("'a'/2"), Ok(vec![b'a', 0]));
    }

    #[test]
    fn bad_data_is_refused_with_its_place() {
        assert_eq!(
            read("\"012\"").unwrap_err(),
            "1:2: data between double quotes has two hexadecimal digits a byte"
        );
        for bad in
            ["\"zz\"", "\"01", "'a", "'\\q'", "'\\x0'", "'\\xgg'", "'\\", "'é'", "\"$eJ\"", "\"0102\"/1", "x"]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read("\"\"/0xffffffffffffffff").unwrap_err().contains("data may have 16 MiB"));
    }
}
