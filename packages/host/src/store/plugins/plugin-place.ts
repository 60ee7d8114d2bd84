/** What one plugin keeps of one user. */
export interface PluginPlace {
  readonly owner: string;
  readonly plugin: string;
}
