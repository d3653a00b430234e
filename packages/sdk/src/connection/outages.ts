import type { Connection } from "./connection.ts";

/** So many answers in a row that a store is away. One may be a moment; the next is asked for anyway. */
const IN_A_ROW = 2;

/** Watches the answers of an instance for `DEPENDENCY_DOWN`, and tells the connection when they repeat. */
export function createOutages(connection: () => Pick<Connection<never>, "trouble" | "well">) {
  let inARow = 0;
  return {
    /** The code of an error, or undefined for an answer that is none. */
    heard(code: string | undefined): void {
      if (code === "DEPENDENCY_DOWN") {
        inARow += 1;
        if (inARow >= IN_A_ROW) connection().trouble("stores");
      } else if (code === undefined) {
        inARow = 0;
        connection().well("stores");
      }
    },
  };
}
