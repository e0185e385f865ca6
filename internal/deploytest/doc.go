// Package deploytest checks what stands in the folder deploy: that the binary is static and has the flags which the manifests give it, that
// files read strictly, that nothing has more rights than it needs, and that alerts and dashboard name metrics that exist.
//
// No container engine and no cluster is asked. Images are not built, and manifests are held against the fields that are written down here:
// a field that is not is an error, so that a misspelled one is found.
package deploytest
