//! A macro for enums whose values have names. A function cannot declare an enum.

/// Declares an enum with the name of each value, as the API writes it. The code of a value is its position from 0, so the
/// order of stored values never changes.
macro_rules! names {
    ($(#[$attribute:meta])* pub enum $type:ident { $($(#[$of_value:meta])* $value:ident = $name:literal,)+ }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type { $($(#[$of_value])* $value,)+ }

        impl $type {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $name),+ }
            }

            /// Parses a name. The error lists all names.
            pub fn parse(text: &str) -> Result<Self, $crate::domain::Invalid> {
                let value = Self::ALL.into_iter().find(|value| value.as_str() == text);
                value.ok_or_else(|| $crate::domain::Invalid(format!("must be one of {}", [$($name),+].join(", "))))
            }

            pub const fn code(self) -> i16 {
                self as i16
            }

            pub fn from_code(code: i16) -> Result<Self, $crate::domain::Invalid> {
                let value = Self::ALL.into_iter().find(|value| value.code() == code);
                value.ok_or_else(|| $crate::domain::Invalid(format!("{code} is no code of {}", stringify!($type))))
            }
        }
    };
}

pub(crate) use names;
