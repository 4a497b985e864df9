/* Search from the file system. A browser starts no worker from file://, so the search worker of the theme runs in a
   hidden frame that has what the worker uses: postMessage, addEventListener and importScripts. The theme asks for the
   class by the name IFrameWorker. */
if (location.protocol === "file:") {
  const load = (target, url) =>
    new Promise((resolve, reject) => {
      const script = target.createElement("script");
      script.src = url;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`cannot load ${url}`));
      target.body.append(script);
    });

  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const scope = this.frame.contentWindow;
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      scope.importScripts = async (...urls) => {
        for (const url of urls) await load(scope.document, url);
      };
      this.ready = load(scope.document, new URL(url, location.href).href);
    }

    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
