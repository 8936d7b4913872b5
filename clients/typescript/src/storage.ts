/** What a device remembers. Written before anything is sent, hence at once and not some time later. */

export interface Store {
  get(name: string): string | null;
  set(name: string, value: string): void;
  names(): string[];
}

/** In this page or process only: who has reported is forgotten with it. */
export function memory(): Store {
  const all = new Map<string, string>();
  return {
    get: (name) => all.get(name) ?? null,
    set: (name, value) => void all.set(name, value),
    names: () => [...all.keys()],
  };
}

/** In the browser, for this origin, under names that begin with `prefix`. */
export function browser(prefix: string): Store {
  return {
    get: (name) => localStorage.getItem(prefix + name),
    set: (name, value) => localStorage.setItem(prefix + name, value),
    names: () =>
      Array.from({ length: localStorage.length }, (_, i) => localStorage.key(i)!)
        .filter((name) => name.startsWith(prefix))
        .map((name) => name.slice(prefix.length)),
  };
}

/** The part of Node's file system that is needed: `folder(await import("node:fs"), path)`. */
export interface Files {
  mkdirSync(path: string, options: { recursive: boolean; mode: number }): unknown;
  readdirSync(path: string): string[];
  existsSync(path: string): boolean;
  readFileSync(path: string, encoding: "utf8"): string;
  openSync(path: string, flags: string, mode: number): number;
  writeSync(file: number, text: string): unknown;
  fsyncSync(file: number): void;
  closeSync(file: number): void;
  renameSync(from: string, to: string): void;
}

/** A folder of files, one per name: each is written anew, synced and put in place. */
export function folder(files: Files, path: string): Store {
  files.mkdirSync(path, { recursive: true, mode: 0o700 });
  const at = (name: string): string => `${path}/${encodeURIComponent(name)}`;
  const synced = (name: string, flags: string, text: string): void => {
    const file = files.openSync(name, flags, 0o600);
    try {
      if (text) files.writeSync(file, text);
      files.fsyncSync(file);
    } finally {
      files.closeSync(file);
    }
  };
  return {
    get: (name) => (files.existsSync(at(name)) ? files.readFileSync(at(name), "utf8") : null),
    set: (name, value) => {
      synced(`${at(name)}.part`, "w", value);
      files.renameSync(`${at(name)}.part`, at(name));
      synced(path, "r", "");
    },
    names: () =>
      files
        .readdirSync(path)
        .filter((name) => !name.endsWith(".part"))
        .map(decodeURIComponent),
  };
}
