// Loaded before a program (`node --import`), in each of its threads: says on stdout when something was synced to disk.
import fs, { writeSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";

const { fsyncSync } = fs;
fs.fsyncSync = (fd) => {
  fsyncSync(fd);
  writeSync(1, "synced\n");
};
syncBuiltinESMExports();
