//! Accounts, e-mail addresses and passwords.

use std::time::Duration;

use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use serde::Serialize;
use unicode_normalization::UnicodeNormalization;

use super::secret::push_random;
use super::{Invalid, Secret, Timestamp, names};

/// The end of the addresses of deleted accounts. No mailbox has such an address (RFC 2606, section 2).
pub const PSEUDONYMS: &str = "@account.invalid";

/// Id of an account, unique within its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccountId(pub i64);

impl AccountId {
    /// Returns the address of the account after it was erased, also in the audit.
    pub fn pseudonym(self) -> String {
        format!("erased-{}{PSEUDONYMS}", self.0)
    }
}

names! {
    /// The role of an account. The databases store the codes.
    pub enum Role {
        /// Places orders, and sees and cancels its own.
        Customer = "customer",
        /// Sees and changes all orders.
        Staff = "staff",
    }
}

/// Time for which the link works by which the owner of an account chooses a password.
pub const LINK_LIFETIME: Duration = Duration::from_hours(1);

/// An account to store.
#[derive(Clone)]
pub struct NewAccount {
    pub email: Email,
    /// `None` for an account that only the command line can use.
    pub password: Option<PasswordDigest>,
    pub role: Role,
}

impl NewAccount {
    pub const fn customer(email: Email, password: Option<PasswordDigest>) -> Self {
        Self { email, password, role: Role::Customer }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub id: AccountId,
    pub email: Email,
    pub role: Role,
    pub created_at: Timestamp,
    /// True if the owner can sign in to the console.
    pub has_password: bool,
    /// `None` unless the account is suspended.
    pub suspended_at: Option<Timestamp>,
}

/// An e-mail address. Stored as entered, compared without regard to case and, in Unicode form NFKC, to how it was entered.
#[derive(Clone, Debug, Serialize)]
pub struct Email(String);

impl Email {
    /// Checks only the form: text on both sides of the last `@`, no white space or control characters, at most 254
    /// characters (RFC 5321, section 4.5.3.1.3, as corrected by erratum 1690).
    pub fn parse(address: &str) -> Result<Self, Invalid> {
        let has_form = address.rsplit_once('@').is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty());
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        if !has_form || address.contains(is_odd) || address.chars().count() > 254 {
            return Err(Invalid("must be an e-mail address, for instance ada@example.com".into()));
        }
        Ok(Self(address.to_owned()))
    }

    /// Parses what a person has entered, perhaps with white space or invisible characters around it, which come with copied
    /// text.
    pub fn parse_entered(address: &str) -> Result<Self, Invalid> {
        let is_odd = |c| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{206f}' | '\u{feff}');
        Self::parse(address.trim_matches(|c: char| c.is_whitespace() || is_odd(c)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether no account may have this address: it looks like that of a deleted account, or the audit, which writes a
    /// colon after an address, would confuse it with another.
    pub fn is_reserved(&self) -> bool {
        self.folded().ends_with(PSEUDONYMS) || self.0.ends_with(':')
    }

    /// Returns whether `name` is this address.
    pub fn is_named(&self, name: &str) -> bool {
        Self::parse(name).is_ok_and(|email| email == *self)
    }

    /// Names the account and its role in the audit.
    pub fn with_role(&self, role: Role) -> String {
        format!("{} ({})", self.0, role.as_str())
    }

    /// Returns the lower-case form in NFKC, by which addresses are compared.
    pub fn folded(&self) -> String {
        nfkc(&nfkc(&self.0).to_lowercase())
    }

    /// Returns the lower-case form, by which early versions compared addresses. Accounts whose addresses are equal in NFKC
    /// keep it.
    pub fn lower_case(&self) -> String {
        self.0.to_lowercase()
    }
}

/// Returns the text in Unicode form NFKC, which unites composed and decomposed letters.
fn nfkc(text: &str) -> String {
    text.nfkc().collect()
}

impl PartialEq for Email {
    fn eq(&self, other: &Self) -> bool {
        self.folded() == other.folded()
    }
}

impl Eq for Email {}

/// A password in Unicode form NFKC (NIST SP 800-63B-4, section 3.1.1.2), of a permitted length: 12 to 128 characters.
#[derive(Clone, Debug)]
pub struct NewPassword(Secret);

impl NewPassword {
    pub fn parse(password: &Secret) -> Result<Self, Invalid> {
        let password = normalized(password);
        match password.expose().chars().count() {
            12..=128 => Ok(Self(password)),
            length => Err(Invalid(format!("has {length} characters; 12 to 128 are allowed"))),
        }
    }

    /// Generates a password of 20 random base62 characters (119 bits).
    pub fn generate() -> Self {
        let mut password = String::new();
        push_random(&mut password, 20);
        Self(Secret::new(password))
    }

    /// Returns the plain text, to show a generated password to its owner.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// Hashes with Argon2id (RFC 9106), 19 MiB, 2 passes, 1 lane: the default, as in OWASP's password storage cheat sheet.
    ///
    /// Takes tens of milliseconds of CPU: never call it on an async worker.
    pub fn hash(&self) -> PasswordDigest {
        let hash = Argon2::default().hash_password(self.0.expose().as_bytes());
        PasswordDigest(Secret::new(hash.expect("a password of this length can be hashed").to_string()))
    }
}

/// Returns the password in Unicode form NFKC.
pub fn normalized(password: &Secret) -> Secret {
    Secret::new(nfkc(password.expose()))
}

const DUMMY: &str = "$argon2id$v=19$m=19456,t=2,p=1$3/4Qutm6sdRL5ZGRVDYh8A$5ZzKp5jwjEonUV/K/LfmK52+P+eqoLbh7qkOb9SGQog";

/// A hashed password in the PHC string format.
#[derive(Clone, Debug)]
pub struct PasswordDigest(pub Secret);

impl PasswordDigest {
    /// Returns the digest of discarded random bytes. A login for an unknown address is verified against it, so that
    /// the response takes as long as for a known one.
    pub fn dummy() -> Self {
        Self(Secret::new(DUMMY))
    }

    /// Returns whether `password` is the one that was hashed. Takes as long as hashing does.
    pub fn matches(&self, password: &Secret) -> bool {
        Argon2::default().verify_password(password.expose().as_bytes(), self.0.expose()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_around_an_entered_address_are_ignored() {
        let entered = Email::parse_entered(" \u{feff}\u{202a}Ada@example.com\u{202c}\u{200f}\n").unwrap();
        assert_eq!(entered.as_str(), "Ada@example.com");
    }

    #[test]
    fn email_comparison_ignores_case() {
        assert_eq!(Email::parse("Ada@Example.com").unwrap(), Email::parse("ada@example.COM").unwrap());
        for invalid in ["", "ada", "@example.com", "ada@", "a da@example.com", "ada@example.com\n"] {
            assert!(Email::parse(invalid).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn password_hash_has_fixed_parameters() {
        let password = Secret::new("correct horse battery");
        let digest = NewPassword::parse(&password).unwrap().hash();
        assert!(digest.0.expose().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", digest.0.expose());
        assert!(digest.matches(&password));
        let parameters = |digest: &PasswordDigest| digest.0.expose().split('$').take(4).collect::<Vec<_>>().join("$");
        assert_eq!(parameters(&PasswordDigest::dummy()), parameters(&digest), "the dummy takes as long");
        assert!(!digest.matches(&Secret::new("correct horse batterz")));
        assert_eq!(format!("{password:?}"), "[hidden]");
        for invalid in ["x".repeat(11), "x".repeat(129)] {
            assert!(NewPassword::parse(&Secret::new(invalid)).is_err());
        }
    }
}
