// The version of this program. package.json has the same, which a test checks.

export const version = '0.2.0';
