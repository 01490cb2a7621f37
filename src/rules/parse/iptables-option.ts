// The type of one option of an iptables rule.

/** `[!] --name values`. */
export interface Option {
  readonly name: string;
  readonly negate: boolean;
  readonly values: readonly string[];
}
