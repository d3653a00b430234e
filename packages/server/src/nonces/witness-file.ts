import { open, readFile, rename } from "node:fs/promises";
import { TenureError } from "@tenure/protocol";
import { Position, type Witness } from "./witness.ts";

/**
 * A file beside the database, synced before a number is given out. Where it cannot be written no number is given out:
 * the operator asked for the witness.
 */
export function openWitnessFile(path: string): Witness {
  async function read(): Promise<Position | undefined> {
    const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return undefined;
      throw down(`cannot be read: ${error.message}`, error);
    });
    if (text === undefined) return undefined;
    try {
      return Position.parse(JSON.parse(text));
    } catch (error) {
      throw down(
        "is not a witness file; remove it if nothing else is there to compare with",
        error,
      );
    }
  }

  /** Made beside and renamed, so that a crash leaves the former position or the new one. */
  async function write(position: Position): Promise<void> {
    try {
      const file = await open(`${path}.new`, "w");
      try {
        await file.writeFile(`${JSON.stringify(position)}
`);
        await file.datasync();
      } finally {
        await file.close();
      }
      await rename(`${path}.new`, path);
    } catch (error) {
      throw down(`cannot be written: ${(error as Error).message}`, error);
    }
  }

  const down = (reason: string, cause: unknown) =>
    new TenureError(
      "DEPENDENCY_DOWN",
      { dependency: "nonce.witness_file", reason: `${path} ${reason}` },
      { cause },
    );

  return { name: "file", read, write };
}
