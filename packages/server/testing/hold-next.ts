import { armFailpoint, disarmAll } from "./failpoints.js";

/** The next one that comes to this failpoint waits there until it is let go; everybody after it goes on. */
export function holdNextAt(name: string): { reached: Promise<void>; letGo(): void } {
  let letGo = () => {};
  const reached = new Promise<void>((resolve) => {
    armFailpoint(name, () => {
      disarmAll();
      resolve();
      return new Promise<void>((go) => {
        letGo = go;
      });
    });
  });
  return { reached, letGo: () => letGo() };
}
