export { Announcement, Entry, checkChain } from "./announcements.js";
export { connect, type Agent, type Options } from "./client.js";
export { checkCost, encoderOf, type Encoder } from "./encoders.js";
export type { Episode, Name } from "./episode.js";
export { browser, folder, memory, type Store } from "./storage.js";
export { Malformed, Refused } from "./wire.js";
