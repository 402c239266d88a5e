//! Passwords in misplaced URLs, such as `petstore restore postgres://ada:PASSWORD@db/shop`.

/// Hides the password or token of every URL in `text`: in `scheme://user:password@`, `scheme://token@` and `password=`.
/// The user in a PostgreSQL URL without a password is kept, because it is not a secret. Idempotent.
pub fn hidden(text: &str) -> String {
    text.split_inclusive(char::is_whitespace).map(word).collect()
}

fn word(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once(":/") else { return word.to_owned() };
    // A path may have lost its second slash.
    let (slashes, rest) = rest.strip_prefix('/').map_or(("/", rest), |rest| ("//", rest));
    let (user, rest) = match rest.rsplit_once('@') {
        None => (String::new(), rest),
        Some((user, rest)) => match user.split_once(':') {
            Some((user, _)) => (format!("{user}:[hidden]@"), rest),
            None if scheme.ends_with("postgres") || scheme.ends_with("postgresql") => (format!("{user}@"), rest),
            None => ("[hidden]@".to_owned(), rest),
        },
    };
    let rest = match rest.split_once("password=") {
        None => rest.to_owned(),
        Some((before, password)) => {
            let end = password.find(['&', '\'', '"', '`', ',', ';']).unwrap_or(password.trim_end().len());
            format!("{before}password=[hidden]{}", &password[end..])
        }
    };
    format!("{scheme}:{slashes}{user}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_hidden() {
        for (text, shown) in [
            ("postgres://u:s3cret@h/db: No such file", "postgres://u:[hidden]@h/db: No such file"),
            ("no postgres:/u:s3:c/r@et@h/db, no", "no postgres:/u:[hidden]@h/db, no"),
            ("'http://s3cret@h' 'https://a:b@h'\n", "'http://[hidden]@h' 'https://a:[hidden]@h'\n"),
            ("postgresql://u@h/db?password=s3cret&a=b", "postgresql://u@h/db?password=[hidden]&a=b"),
            ("'postgres://h/db?sslpassword=s3cret' is", "'postgres://h/db?sslpassword=[hidden]' is"),
            ("postgres://h/db?password=s3cret", "postgres://h/db?password=[hidden]"),
            ("http://127.0.0.1:8080/v1 and ada@example.com", "http://127.0.0.1:8080/v1 and ada@example.com"),
        ] {
            assert_eq!(hidden(text), shown);
            assert_eq!(hidden(shown), shown);
        }
    }
}
