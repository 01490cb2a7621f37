// The version of this program.

/** The version of the program; package.json says the same, and a test holds them together. */
export const version = '0.1.0';
