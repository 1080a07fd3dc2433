//! Quoting for a login shell that may be sh, dash, bash, csh, tcsh, zsh or fish.

/// One word, whatever is in it. A quote and an exclamation mark stand outside the quotes: csh looks for
/// its history inside them too.
pub(super) fn quote(word: &str) -> String {
    let mut out = String::with_capacity(word.len() + 2);
    out.push('\'');
    for c in word.chars() {
        if matches!(c, '\'' | '!') {
            out.push_str("'\\");
            out.push(c);
            out.push('\'');
        } else {
            out.push(c);
        }
    }
    out.push('\'');
    out
}

/// The command that runs a script under `/bin/sh` with these arguments, whatever the login shell is.
pub(super) fn command(script: &str, arguments: &[&str]) -> String {
    let mut out = format!("exec /bin/sh -c {} tuplane", quote(script));
    for argument in arguments {
        out.push(' ');
        out.push_str(&quote(argument));
    }
    out
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotes_and_exclamation_marks_stand_outside() {
        assert_eq!(quote("it's! so"), r"'it'\''s'\!' so'");
        assert_eq!(quote(""), "''");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_shell_gives_the_same_word_back(word in "[ -~é]{0,24}", other in "[ -~]{0,8}") {
            let line = command(r#"printf "%s|%s" "$1" "$2""#, &[&word, &other]);
            let output = Command::new("/bin/sh").args(["-c", &line]).output().unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{word}|{other}"));
        }
    }
}
